"""Reward training and scoring for the post-training of generative models."""

__version__ = "0.1.0"
