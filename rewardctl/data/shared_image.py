"""Images that share their pixels until one of them is written to."""

from typing import Any

from PIL import Image


class SharedImage(Image.Image):
    """An RGB image over pixels that others read too; the first write gives it pixels of its own.

    Pillow copies a read-only image before it draws, pastes or sets pixels in it. What it does not
    guard, single pixels by `load()` and `frombytes`, is guarded here.
    """

    def load(self) -> Any:
        """Pixel access, for reading and writing."""
        pixels = super().load()
        return _Pixels(self, pixels) if self.readonly else pixels

    def frombytes(self, *args: Any, **kwargs: Any) -> None:
        """Replace the pixels, in this image only."""
        self._ensure_mutable()
        super().frombytes(*args, **kwargs)


class _Pixels:
    """Pixel access that leaves shared pixels alone."""

    def __init__(self, image: SharedImage, pixels: Any) -> None:
        self._image = image
        self._pixels = pixels

    def __getitem__(self, place: Any) -> Any:
        return self._pixels[place]

    def __setitem__(self, place: Any, colour: Any) -> None:
        if self._image.readonly:
            self._image._copy()
            self._pixels = self._image.im.pixel_access(0)
        self._pixels[place] = colour


def share(image: Image.Image) -> SharedImage:
    """An image with the pixels of `image`, which must not be written to from now on."""
    shared = SharedImage()
    shared.im = image.im
    shared._mode = image.mode
    shared._size = image.size
    shared.info = image.info.copy()
    shared.readonly = 1
    return shared
