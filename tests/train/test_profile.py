"""A profile of some steps, with the marks that xprof goes by; it changes nothing that is trained."""

from tasks.files import digest_file, verify
from tasks.track.contents import run_items
from tasks.train.checkpoint import VARIABLES
from tasks.train.stage import train

DENSE = (
    "model.build=models_for_tests:dense",
    "model.args={}",
    "train.optimizer.schedule.kind=constant",
    "train.total=30 steps",
    "train.steps_per_call=8",
)


def marked_steps(file):
    """Returns the numbers of the steps that a profile has a mark of."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(file.read_bytes())
    return sorted(
        {
            stat.int64_value
            for plane in space.planes
            for line in plane.lines
            for event in line.events
            if plane.event_metadata[event.metadata_id].name == "train"
            for stat in event.stats
            if plane.stat_metadata[stat.metadata_id].name == "step_num"
        }
    )


def test_the_wanted_steps_are_profiled_once_and_the_weights_are_those_of_a_run_without(trainer):
    plain, run = trainer.run(*DENSE), trainer.run(*DENSE, "train.profile_steps=5")
    expected, trained = train(plain, trainer.digits.shards), train(run, trainer.digits.shards)
    assert digest_file(trained.last_checkpoint / VARIABLES) == digest_file(expected.last_checkpoint / VARIABLES)
    verify(run.profile)
    (file,) = run.profile.rglob("*.xplane.pb")
    assert marked_steps(file) == [1, 2, 3, 4, 5]  # the first call is one step long
    assert f"{file.parent.relative_to(run.directory)}/{file.name}" in [item.name for item in run_items(run)]
    assert not plain.profile.exists()

    before = file.read_bytes()
    longer = trainer.digits.same_run(run, "train.total=40 steps", "train.profile_steps=9")
    assert train(longer, trainer.digits.shards).num_steps == 40
    assert [path.read_bytes() for path in run.profile.rglob("*.xplane.pb")] == [before]


def test_a_profile_ends_before_the_epoch_does(trainer):
    run = trainer.run(*DENSE, "train.profile_steps=1000")
    train(run, trainer.digits.shards)
    (file,) = run.profile.rglob("*.xplane.pb")
    assert marked_steps(file) == list(range(1, 23))
