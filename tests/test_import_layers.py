"""Imports point one way: cli → runs → (rewards, training, evaluation) → data → config → errors."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "rewardctl"
FILES = sorted(PACKAGE.rglob("*.py"))

# What each layer may import besides itself.
MAY_IMPORT = {
    "errors": set(),
    "config": {"errors"},
    "data": {"config", "errors"},
    "rewards": {"data", "config", "errors"},
    "training": {"data", "config", "errors"},
    "evaluation": {"data", "config", "errors"},
    "testing": {"rewards", "data", "config", "errors"},
    "runs": {"rewards", "training", "evaluation", "data", "config", "errors"},
    "cli": {"runs", "rewards", "training", "evaluation", "data", "config", "errors"},
    "__main__": {"cli", "runs", "errors"},
    "__init__": set(),
}
# A checkpoint is loaded by the reward model that scores with it.
EXCEPTIONS = {("rewards/builtin/trained.py", "training")}
HEAVY = {"torch", "accelerate", "transformers", "PIL", "numpy"}


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def layer_of(path: Path) -> str:
    """The folder or file of the package; a command with a file of its own (cli_score.py) is cli."""
    name = relative(path).partition("/")[0].removesuffix(".py")
    return "cli" if name.startswith("cli_") else name


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Full names of imported modules, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield str(node.module), node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def top_level(tree: ast.Module) -> ast.Module:
    """The statements that run when the module is imported: no functions, no TYPE_CHECKING."""
    kept: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            kept.append(node)
    return ast.Module([n for n in kept if not isinstance(n, ast.ClassDef)], [])


def is_light(path: Path) -> bool:
    name = relative(path)
    return (
        layer_of(path) in ("cli", "__main__", "__init__", "errors")
        or name == "rewards/__init__.py"
        or name.startswith(("config/", "rewards/builtin/"))
        or name in ("rewards/registry.py", "rewards/abc.py", "rewards/check.py")
    )


def test_the_package_is_looked_at() -> None:
    assert len(FILES) > 20
    assert {layer_of(path) for path in FILES} <= MAY_IMPORT.keys()


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_a_file_imports_only_from_below(path: Path) -> None:
    layer = layer_of(path)
    for name, line in imports(ast.parse(path.read_text(encoding="utf-8"))):
        steps = name.split(".")
        if steps[0] != "rewardctl" or len(steps) < 2 or steps[1] == "__version__":
            continue
        target = "cli" if steps[1].startswith("cli_") else steps[1]
        allowed = target in {layer, *MAY_IMPORT[layer]} or (relative(path), target) in EXCEPTIONS
        assert allowed, f"{relative(path)}:{line} imports {name}"


@pytest.mark.parametrize("path", [p for p in FILES if is_light(p)], ids=relative)
def test_a_light_file_imports_nothing_heavy_at_its_top(path: Path) -> None:
    tree = top_level(ast.parse(path.read_text(encoding="utf-8")))
    for name, line in imports(tree):
        assert name.partition(".")[0] not in HEAVY, f"{relative(path)}:{line} imports {name}"


# A signal can come before the command line is imported; a second one ends the process at once.
MAY_EXIT = {
    ("__main__.py", "sys.exit"),
    ("__main__.py", "print"),
    ("runs/interrupt.py", "os._exit"),
}


@pytest.mark.parametrize("path", [p for p in FILES if layer_of(p) != "cli"], ids=relative)
def test_nothing_but_the_command_line_prints_or_exits(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allowed = (relative(path), called) in MAY_EXIT
            assert allowed or called not in ("print", "exit", "quit", "sys.exit", "os._exit"), (
                f"{relative(path)}:{node.lineno} calls {called}"
            )
