"""From what was typed to tasks."""

from pathlib import Path

import pytest

from yunhe.entrypoints.cli.session.task_files import Overrides, tasks_from
from yunhe.entrypoints.cli.session.uploads import WHOLE, sources_of
from yunhe.kernel.errors import InvalidInputError
from yunhe.kernel.money import Tier
from yunhe.scheduling.decision.model import Policy
from yunhe.trading.demand.model import ResourceSpec, Task

NOTHING = Overrides()


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_file_gives_its_name_to_a_task_without_one(tmp_path: Path) -> None:
    ((task, _),) = tasks_from([written(tmp_path, "My Task.yaml", "run: 'true'")], [], NOTHING)
    assert task.name == "my-task"


def test_a_command_is_quoted_so_that_its_words_stay_its_words() -> None:
    ((task, _),) = tasks_from([], ["echo", "a b", "$HOME"], NOTHING)
    assert task == Task(name="echo", run="echo 'a b' '$HOME'")


def test_a_command_in_one_word_is_a_script() -> None:
    ((task, _),) = tasks_from([], ["echo a; echo b"], NOTHING)
    assert task.run == "echo a; echo b"


def test_options_win_over_the_file_and_over_its_alternatives(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "t.yaml",
        "run: 'true'\nenvs: {A: 1, B: 2}\nsecrets: [S]\n"
        "resources: {accelerators: A100:4, any_of: [{cpus: 8, memory: 1}, {cpus: 16}]}\n",
    )
    overrides = Overrides(
        name="other",
        cpus="2",
        gpus="3",
        pool="lab",
        envs=["B=3", "C=x=y"],
        secrets=["S", "T"],
        tier="low",
        policy="nearest",
        near="cn-north",
        retries=1,
        timeout="5m",
    )
    ((task, _),) = tasks_from([path], [], overrides)
    assert task == Task(
        name="other",
        run="true",
        envs={"A": "1", "B": "3", "C": "x=y"},
        secrets=("S", "T"),
        resources=ResourceSpec(
            cpus="2",
            accelerators="A100:3",
            pool="lab",
            any_of=(ResourceSpec(memory=1), ResourceSpec()),
        ),
        tier=Tier.LOW,
        policy=Policy.NEAREST,
        near="cn-north",
        retries=1,
        timeout="5m",
    )


def test_a_variable_left_open_in_the_file_is_given_on_the_line(tmp_path: Path) -> None:
    path = written(tmp_path, "t.yaml", "run: 'true'\nenvs: {TOKEN: null}")
    ((task, _),) = tasks_from([path], [], Overrides(envs=["TOKEN=x"]))
    assert task.envs == {"TOKEN": "x"}
    with pytest.raises(InvalidInputError):
        tasks_from([path], [], NOTHING)


def test_problems_of_every_file_are_told_together(tmp_path: Path) -> None:
    one = written(tmp_path, "one.yaml", "run: 'true'\ntier: best\nworkdir: not/here")
    two = written(tmp_path, "two.yaml", "run: 'true'\nfile_mounts: {x: not/there}")
    with pytest.raises(InvalidInputError) as caught:
        tasks_from([one, two], [], NOTHING)
    assert [problem.field for problem in caught.value.fields] == [
        f"{one}: tier",
        f"{two}: file_mounts.x",
    ]


@pytest.mark.parametrize(
    ("files", "command"), [([], []), (["a.yaml"], ["true"]), (["no/such.yaml"], []), (["/"], [])]
)
def test_what_cannot_be_a_task_is_refused_with_a_remedy(files: list[str], command: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        tasks_from(files, command, NOTHING)
    assert caught.value.remedy


def test_files_travel_in_the_directory_they_belong_in(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "file.txt").write_text("x")
    task = Task(
        run="true",
        workdir=str(folder),
        file_mounts={
            "data": str(folder),
            "~/data/renamed.txt": str(tmp_path / "file.txt"),
            "top.txt": str(tmp_path / "file.txt"),
        },
    )
    assert sources_of(task) == {
        ".": [(WHOLE, folder), ("top.txt", tmp_path / "file.txt")],
        "data": [(WHOLE, folder), ("renamed.txt", tmp_path / "file.txt")],
    }
