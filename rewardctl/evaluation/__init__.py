"""How good scores are: figures over stored scores, their intervals, and how they are shown.

Reading preference rows and calling reward models is not done here; see runs/eval.py.
"""
