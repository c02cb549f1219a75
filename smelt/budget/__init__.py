"""Budgets: parameters, FLOPs, KV cache and sparsity of a run; the solver that matches them; the plan."""

from smelt.budget.accounting import Budget, budget, flops_per_token, kv_elements, parameters, sparsity
from smelt.budget.resolve import resolve_point, resolve_run
from smelt.budget.search import Recipe
from smelt.budget.solver import Match, match

__all__ = [
    "Budget",
    "Match",
    "Recipe",
    "budget",
    "flops_per_token",
    "kv_elements",
    "match",
    "parameters",
    "resolve_point",
    "resolve_run",
    "sparsity",
]
