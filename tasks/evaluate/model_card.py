"""The model card: what a model is, was judged on and cannot be trusted in, on one page of Markdown."""

from tasks.evaluate.facts import Facts
from tasks.evaluate.template import render


def model_card(facts: Facts, version: str = "latest") -> str:
    """Returns the card, which names a version of the model in the registry if that is known."""
    return render("model_card.md", facts=facts, report=facts.report, loading=facts.loading(version))
