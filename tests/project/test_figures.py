"""The tool that refreshes the figures of the documentation."""

from types import SimpleNamespace

import figures
import shipped_table

PAGE = """Text.

```sh
tileseer --version
```

<!-- figures -->
```text
tileseer 0.0.0
```
<!-- end of figures -->

<!-- figures -->
```text
model gfx950 forward_bf16: 1 row
report gfx950: old
```
<!-- end of figures -->
"""


def test_blocks_are_outputs_of_commands_and_ends_of_logs(tmp_path, capsys):
    log = tmp_path / "logs/gfx950/forward_bf16/model.log"
    log.parent.mkdir(parents=True)
    log.write_text("a warning\nmodel gfx950 forward_bf16: 2 rows\n")
    refreshed = figures.refreshed(PAGE, tmp_path)
    assert "tileseer 0.0.0" not in refreshed and "```text\ntileseer 0." in refreshed
    assert "model gfx950 forward_bf16: 2 rows\nreport gfx950: old\n```\n" in refreshed
    assert "no log ends with report gfx950" in capsys.readouterr().err


def test_a_command_that_fails_leaves_its_block(tmp_path, capsys):
    page = PAGE.replace("--version", "no-such-command")
    assert "tileseer 0.0.0" in figures.refreshed(page, tmp_path)
    assert "left as it is: tileseer no-such-command" in capsys.readouterr().err


def test_a_row_of_the_results_has_the_figures_of_its_evaluation():
    figure = SimpleNamespace(mean=97.126, median=100.0, p10=90.0)
    found = SimpleNamespace(
        layers=1332, first=figure, interval={"mean": (96.0, 98.5)}, possible=figure,
        baselines={"best_single_kernel": SimpleNamespace(efficiency=figure)},
    )  # fmt: skip
    row = "| H200, forward bf16 | recorded | 332 | 99.21 (98.99 to 99.40) | 100.00 | 97.51 | 71.71 | | 99.86 |"
    assert figures.row_of_evaluation(row, found) == (
        "| H200, forward bf16 | recorded | 1,332 | 97.13 (96.00 to 98.50) | 100.00 | 90.00 | 97.13 | | 97.13 |"
    )


def test_rows_without_a_report_stay(tmp_path):
    page = (figures.ROOT / "docs/internals/results.md").read_text()
    assert figures.with_results(page, tmp_path) == page


def test_the_readme_has_the_table_that_follows_from_the_page_of_shipped_picks():
    shown = shipped_table.BLOCK.search(shipped_table.README.read_text())
    assert shown[0] == shipped_table.readme_table(shipped_table.PAGE.read_text()), "run make figures"
