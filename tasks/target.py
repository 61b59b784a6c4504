"""Target: what is learned of an example: one of several classes or of two, any number of classes, or numbers."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from tasks.augmentation import Cutmix, Mixup
from tasks.errors import ConfigError
from tasks.section import Section, kind_if_none
from tasks.sources import ArraySource, TableSource, TfdsSource

if TYPE_CHECKING:
    from tasks.config import Config

Metric = Literal[
    "val_loss",
    "val_accuracy",
    "val_roc_auc",
    "val_precision",
    "val_recall",
    "val_subset_accuracy",
    "val_micro_f1",
    "val_macro_f1",
    "val_mean_average_precision",
    "val_mae",
    "val_rmse",
    "val_r2",
]
BestMetric = Literal["auto", Metric]


class MulticlassTarget(Section):
    """One of several classes: a logit for each."""

    kind: Literal["multiclass"] = "multiclass"


class BinaryTarget(Section):
    """One of two classes: one logit, of the positive class."""

    kind: Literal["binary"] = "binary"
    positive: str | None = None
    """The positive class, of which precision and recall are told; default: the second."""


class MultiLabelTarget(Section):
    """Any number of classes at once, none included: a logit for each, which knows nothing of the others."""

    kind: Literal["multi_label"] = "multi_label"
    delimiter: str = Field("|", min_length=1)
    """What stands between the names of an example's classes where these are one text; blanks round them are none."""


class RegressionTarget(Section):
    """One number or several. A model learns them less the mean and over the deviation of the training split; figures,
    predictions and the exported model have their own unit."""

    kind: Literal["regression"] = "regression"


Target = Annotated[
    MulticlassTarget | BinaryTarget | MultiLabelTarget | RegressionTarget,
    Field(discriminator="kind"),
    kind_if_none("multiclass"),
]

FIGURES = {
    "multiclass": ("accuracy", "loss"),
    "binary": ("accuracy", "loss", "roc_auc", "precision", "recall"),
    "multi_label": ("loss", "subset_accuracy", "micro_f1", "macro_f1", "roc_auc", "mean_average_precision"),
    "regression": ("loss", "mae", "rmse", "r2"),
}
"""What a validation tells of each kind; the first is train.best_metric unless another is named."""


def is_lower_better(metric: str) -> bool:
    """Returns whether a figure, such as val_loss or eval/rmse, is the better the lower it is."""
    return metric.endswith(("loss", "mae", "rmse", "ece"))


def fit_target(config: "Config") -> "Config":
    """Returns the config with the metric that `auto` means; raises ConfigError if a setting does not fit data.target.

    They are refused by name, before anything is fetched: what would be without effect is no less wrong.
    """
    data, train, feed = config.data, config.train, config.feed
    kind, known = data.target.kind, FIGURES[data.target.kind]
    own = train.has_own_loss
    one_class, classes = kind in ("multiclass", "binary"), kind != "regression"
    more = TableSource | ArraySource if classes else TableSource | ArraySource | TfdsSource
    holds = one_class or isinstance(data.source, more)
    mixing = next((change.kind for change in feed.augment if isinstance(change, Mixup | Cutmix)), None)
    metrics: dict[str, str] = {"train.best_metric": train.best_metric}
    if train.early_stopping is not None:
        metrics["train.early_stopping.metric"] = train.early_stopping.metric
    unknown = [
        f"{name}={value}"
        for name, value in metrics.items()
        if value != "auto" and value.removeprefix("val_") not in known
    ]
    only_one = "which has no one class; "
    for fits, setting, why in (
        (
            holds,
            f"data.source.kind={data.source.kind}",
            f"since such a source has one class an example; take table or array{'' if classes else ', or tfds'}",
        ),
        (one_class or feed.sampling == "uniform", f"feed.sampling={feed.sampling}", f"{only_one}take uniform"),
        (one_class or mixing is None, f"feed.augment: {mixing}", f"{only_one}leave it out"),
        (classes or train.class_weights is None, "train.class_weights", "which has no classes; leave it out"),
        (classes or not train.label_smoothing, "train.label_smoothing", "which has no classes; leave it out"),
        (
            not classes or train.loss == "auto" or own,
            f"train.loss={train.loss}",
            "whose loss is cross-entropy; leave it out",
        ),
        (
            one_class or not own or train.class_weights is None,
            "train.class_weights",
            f"{only_one}leave them to train.loss",
        ),
        (
            kind in ("binary", "multi_label") or config.evaluate.threshold == 0.5,
            f"evaluate.threshold={config.evaluate.threshold:g}",
            "which has no threshold; leave it out",
        ),
        (
            not unknown,
            "".join(unknown[:1]),
            f"which has {', '.join(f'val_{name}' for name in known)}; take one of these",
        ),
    ):
        if not fits:
            raise ConfigError(f"{setting}: does not fit data.target.kind={kind}, {why}")
    if train.best_metric != "auto":
        return config
    return config.model_copy(update={"train": train.model_copy(update={"best_metric": f"val_{known[0]}"})})
