"""The occasion: new data, an old champion or none; never what was tried before."""

from pathlib import Path

from mlflow import MlflowClient

from tasks.config import build_config
from tasks.promote.occasion import occasion
from tasks.promote.promotion import promote, rollback


def test_data_are_new_until_a_model_of_them_was_served_or_judged(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    config, tags = build_config({"name": "every_kind"}), client.get_model_version("every_kind", "1").tags
    digest, unchanged = tags["millstream.data_digest"], f"data unchanged since {tags['millstream.run_id']}"
    assert occasion(config, workspace, digest) == (True, "every_kind has no champion yet")
    promote("every_kind/1", workspace, reason="")
    assert occasion(config, workspace, digest) == (False, unchanged)
    assert occasion(config, workspace, "new") == (True, "the data have changed since every_kind/1")
    client.set_model_version_tag("every_kind", "3", "millstream.data_digest", "new")
    assert occasion(config, workspace, "new").is_one  # it was registered by `millstream run`, and never judged
    client.set_model_version_tag("every_kind", "3", "millstream.gate", "accepted")
    assert occasion(config, workspace, "new").is_one  # the flow ended before it was promoted
    client.set_model_version_tag("every_kind", "3", "millstream.gate", "rejected")
    assert occasion(config, workspace, "new") == (False, unchanged)
    promote("every_kind/2", workspace, reason="")
    rollback("every_kind", workspace, reason="")
    assert not occasion(config, workspace, digest).is_one  # or what was rolled back would come again


def test_an_old_champion_is_cause_enough(place: tuple[Path, MlflowClient]) -> None:
    workspace, client = place
    digest = client.get_model_version("every_kind", "1").tags["millstream.data_digest"]
    promote("every_kind/1", workspace, reason="")
    for days, is_one in ((1, False), (1e-9, True)):
        config = build_config({"name": "every_kind", "promote": {"max_champion_age_days": days}})
        found = occasion(config, workspace, digest)
        assert found.is_one == is_one
    assert found.cause == "every_kind/1 is 0.0 days old, over promote.max_champion_age_days=1e-09"
