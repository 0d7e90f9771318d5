"""The report: what it shows, that it is complete in itself, and that the same results give the same bytes."""

import csv
import dataclasses
import io
import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import learning_samples as samples
import numpy as np
import pytest
from dataset_files import dataset
from published_models import GOOD, context, make
from repository import ROOT
from stages_by_hand import main_of

from tileseer.core import documents
from tileseer.core.checkout import Source
from tileseer.core.errors import UserError
from tileseer.data.provenance import Recording
from tileseer.judge import report
from tileseer.judge.evaluation import evaluate
from tileseer.judge.figures import Baseline, LibraryComparison
from tileseer.judge.layers import write_layers
from tileseer.judge.ranking import score_ranking
from tileseer.measure.device import DEVICE_KINDS

TEMPLATE = ROOT / "workflow/templates/report.html.j2"
CALL = "tileseer run --arch gfx950 --configfile mine.yaml"
DIRECTIONS = ("forward", "bwd_data", "bwd_weight")
HOSTILE = "<script>alert(1)</script>"
FORMULA = "=1+1"
VOID = {"meta", "link", "br", "img", "input"}
LOW = {"efficiency": GOOD.model_copy(update={"mean": 96.5})}
GOOD_OF_TWO = {
    "efficiency": GOOD.model_copy(update={"p10": 97.0, "min": 60.0}), "possible": GOOD, "networks": [],
    "sum_over_best": 1.01, "sum_without_model": 1.2, "worst_of_longest": 1.1,
    "baselines": {"fixed_order": Baseline(efficiency=GOOD.model_copy(update={"mean": 90.0}), speed=1.1)},
}  # fmt: skip
SLOW = {
    "sum_without_model": 1.0, "libraries": [LibraryComparison(library="rocMLIR 1", layers=3, speed=0.9, slower=50.0)]
}  # fmt: skip


def operation(direction="forward", kind="simulated", **changed):
    """What came out of an operation of the small world, whose picks are drawn; two of its names are hostile."""
    data = samples.measured(direction)
    names = data.problems["layer"].replace({"layer3": HOSTILE, "layer7": FORMULA})
    data = dataclasses.replace(data, problems=data.problems.assign(layer=names), device_kind=kind)
    scores = np.random.default_rng(1).random((len(data.problems), len(data.candidates)))
    scored = score_ranking(data, scores, np.ones(scores.shape, bool))
    keys = data.problems["problem_key"]
    uses = [(key, HOSTILE, "train", "conv", 2, 0.1) for key in keys[data.held_out]]
    found, layers = evaluate(scored, samples.MI355X, context(uses))
    kernels = SimpleNamespace(
        operation=data.operation, pool_size=24, pruned_size=2, oracle_within_pruned={"train": GOOD, "validation": GOOD},
        **{name: getattr(data, name) for name in ("arch", "device", "device_kind")},
    )  # fmt: skip
    return report.Operation(found.model_copy(update=changed), layers, kernels)


RECORDING = Recording(
    arch="gfx950", device="gfx950_mi355x", device_kind="simulated", operations=["forward_bf16"], latency="a mean",
    measurement_id="1f" * 8, provenance={},
)  # fmt: skip
SOURCE = Source(commit="c0ffee" * 6 + "abcd", date="2026-11-20", uncommitted=[])


def render(operations, recording=RECORDING, source=SOURCE, template=TEMPLATE):
    return report.render_report(operations, recording, template, CALL, source, "5e771265" * 8, "gfx950.csv")


def sample(kind="simulated"):
    return [operation(direction, kind) for direction in DIRECTIONS]


@pytest.fixture(scope="module")
def html():
    return render(sample())


class Page(HTMLParser):
    """The elements, attributes and texts of a page, and whether its elements are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data.strip())


def rows_of(html, caption):
    """The texts of the cells of a table, by row."""
    table = re.search(rf"<caption><span>{caption}.*?</table>", html, re.DOTALL)[0]
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)]


def test_the_page_is_well_formed_and_says_of_everything_what_it_shows(html):
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>") and page.open == []
    identifiers = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(identifiers)) == len(identifiers)
    linked = {attributes["href"] for tag, attributes in page.elements if tag == "a"}
    assert linked == {*(f"#{name}" for name in identifiers if not name.endswith("-title")), "gfx950.csv"}
    captions = re.findall(r"<(?:caption|figcaption)>(.*?)</(?:caption|figcaption)>", html)
    assert len(captions) + 1 == html.count("<table") + html.count("<svg "), "the table of verdicts has the headline"
    assert html.count("<svg ") == 8 and all("(simulated)" in caption for caption in captions)
    assert html.count("<th scope=") == html.count("<th ")


def test_names_cannot_become_markup_and_nothing_is_loaded_or_run(html):
    page = Page(html)
    assert not {tag for tag, _ in page.elements} & {"script", "img", "iframe", "object", "link", "foreignobject"}
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on") or name == "src"
    ]
    assert HOSTILE in page.texts and any(HOSTILE in text and "net" in text for text in page.texts)
    assert not re.search(r"url\((?!#)|@import", html) and "default-src 'none'" in html


def test_the_same_results_give_the_same_bytes(html):
    assert render(sample()) == html


def test_the_numbers_are_those_of_the_evaluation(html):
    (one, *_) = sample()
    found = one.evaluation
    row = rows_of(html, "Efficiency of the picks that ship")[1]
    # Nobody timed anything of the small world twice.
    assert row[:3] == ["forward_bf16", f"{found.efficiency.mean:.1f}", "not known"]
    row = rows_of(html, "Time of the picks that ship")[1]
    assert row[:3] == ["forward_bf16", f"{found.sum_over_best:.3f}", "not known"]
    longest = rows_of(html, "The layers that take most time with their picks")[1:]
    assert len(longest) == 10 and found.worst_of_longest == pytest.approx(
        max(min(100 / max(float(row[1]), 1e-9), 10.0) for row in longest), rel=0.01
    )
    worst = rows_of(html, "The worst picks, forward")[1]
    assert worst[1] == f"{found.efficiency.min:.1f}" and found.worst_layer.network in worst[0]
    assert rows_of(html, "All networks")[1][3] == f"{min(one.evaluation.networks[0].by_time for one in sample()):.1f}"
    kinds = rows_of(html, "Loss against the fastest candidate, by kind of layer and by evidence, forward")
    assert sum(int(row[1]) for row in kinds[1:] if not row[0].startswith("evidence")) == found.layers
    assert {row[0] for row in rows_of(html, "Efficiency of each way to choose, forward")[1:]} >= {"pick", "hand rule"}
    assert rows_of(html, "The few kernels to ship")[1] == ["forward_bf16", "2 of 24", "1.00", "1.00", "2.00"]
    product = samples.MI355X
    assert f"roofline is {product.peak_tflops('bf16'):,.0f} TFLOPS and {product.hbm_tb_per_s:g} TB/s" in html


def test_a_picture_counts_every_layer_and_names_its_winner(html):
    ran = sample()[0].ran
    said = re.search(rf"Layers of {len(ran)} won: (.*?)\.", html)[1]
    counts = dict(part.rsplit(" ", 1) for part in said.split(", "))
    assert {name: int(count) for name, count in counts.items()} == ran["pipeline"].value_counts().to_dict()
    cells = re.findall(r"<title>M from .*? of (\d+) layers</title>", html.split("</svg>")[2])
    assert sum(map(int, cells)) == len(ran)


def test_the_foot_names_commit_settings_and_data(html):
    foot = " ".join(html.partition("<footer>")[2].split())
    assert "c0ffeec0ffee</span> of 2026-11-20," in foot and "settings 5e7712655e77" in foot
    assert f"Measurement {'1f' * 8}." in foot
    recorded = RECORDING.model_copy(
        update={"device_kind": None, "provenance": {"source": f"somebody {HOSTILE}", "date": "2026-11-19"}}
    )
    page = render([operation()], recorded, Source(commit="beef" * 10, date="2026-11-20", uncommitted=["a"]))
    foot = page.partition("<footer>")[2]
    assert "with 1 uncommitted files" in foot and "Times recorded on 2026-11-19: somebody &lt;script" in foot
    assert rows_of(page, "How the times were recorded")[1:] == [
        ["times", "a mean"], ["source", "somebody &lt;script&gt;alert(1)&lt;/script&gt;"], ["date", "2026-11-19"]
    ]  # fmt: skip


@pytest.mark.parametrize("kind", DEVICE_KINDS)
def test_only_simulated_times_are_called_simulated(kind):
    text = render([operation(kind=kind)], RECORDING.model_copy(update={"device_kind": kind}))
    assert ("simulated" in text) == ("Simulated:" in text) == (kind == "simulated") and f"({kind})" in text


@pytest.mark.parametrize(
    ("kind", "changed", "use", "near", "reason", "headline"),
    [
        ("measured", {}, "good yes", "good yes", None, "Use it: 1."),
        ("simulated", {}, "good yes", "good yes", None, "In the simulation: use it: 1."),
        ("measured", {"covered_time": 90.0}, "limited mostly", "bad not yet", "0 of ", "Untimed picks of 1 of 1"),
        ("simulated", LOW, "good yes", "limited not yet", "mean 96.5 %", "Untimed picks of 1 of 1"),
        ("measured", SLOW, "bad no", "limited not yet", "is faster", "Do not use it yet: what runs today is faster"),
    ],
)  # fmt: skip
def test_the_page_begins_with_two_answers_their_reasons_and_the_next_step(kind, changed, use, near, reason, headline):
    text = render([operation(kind=kind, **GOOD_OF_TWO | changed)])
    first = text.split("</section>")[0]
    assert re.findall(r'<span class="badge (\w+)">([\w ]+)</span>', first) == [
        tuple(one.split(" ", 1)) for one in (use, near)
    ]
    assert ("Limits of what is possible that are missed" in first) == bool(reason) and first.count("<svg ") == 2
    assert headline in first and (reason is None or reason in rows_of(first, "Limits of what is possible")[1][1])
    if kind == "simulated":
        assert "<code>tileseer run results/models/gfx950 --configfile config/hip.yaml</code>" in first


def test_the_advice_follows_from_the_figures():
    quiet = operation(**GOOD_OF_TWO, best_of_2=GOOD, by_kind={}, by_evidence={}, failed=0, without_candidate=0)
    assert "What would improve" not in render([quiet])
    loud = operation(**GOOD_OF_TWO, best_of_2=GOOD.model_copy(update={"mean": 99.9}), failed=3, without_candidate=7)
    advice = {row[1]: row[2] for row in rows_of(render([loud]), "What would improve the models")[1:]}
    assert "mean 99.9 %" in advice["time two picks once (tileseer tune)"]
    assert advice["repair the kernels that fail"] == "3 picks did not run"
    assert advice["add kernels (configs.rule_set)"] == "7 layers have none"


def written(folder, operations):
    """The evaluations of operations as files."""
    for one in operations:
        documents.write_document(folder / f"{one.name}.json", one.evaluation)
        write_layers(folder / f"{one.name}.parquet", one.layers)
    return [folder / f"{one.name}.json" for one in operations], [one.kernels for one in operations]


def test_the_files_of_all_operations_are_read_in_any_order_and_another_device_is_refused(tmp_path):
    files, kernels = written(tmp_path, sample()[:2])
    for order in (1, -1):
        assert [one.name for one in report.read_operations(files[::order], kernels)] == [
            "forward_bf16",
            "bwd_data_bf16",
        ]
    with pytest.raises(UserError, match="give one list for each operation of the evaluations, bwd_data_bf16, forward"):
        report.read_operations(files, kernels[:1])
    sound = json.loads(files[1].read_text())
    for field, value in (("device", "other"), ("device_kind", "guessed"), ("baselines", {"x": {"meaning": 1}})):
        files[1].write_text(json.dumps(sound | {field: value}))
        with pytest.raises(UserError, match=rf"bwd_data_bf16\.json: {field}"):
            report.read_operations(files, kernels)


def test_all_layers_are_beside_the_page_and_no_name_is_a_formula():
    operations = sample()
    rows = list(csv.DictReader(io.StringIO(report.layers_as_csv(operations))))
    assert len(rows) == sum(len(one.layers) for one in operations)
    assert {(row["arch"], row["device_kind"]) for row in rows} == {("gfx950", "simulated")}
    layers = [row["layer"] for row in rows]
    assert layers.count(f"'{FORMULA}") == 3 and FORMULA not in layers and HOSTILE in layers
    one = operations[0].layers
    same = [row for row in rows if row["operation"] == "forward_bf16"]
    assert [row["problem_key"] for row in same] == one["problem_key"].tolist()
    assert np.allclose([float(row["efficiency"] or "nan") for row in same], one["efficiency"], equal_nan=True)


@pytest.mark.parametrize("text", ["{% if %}", "{{ nothing }}"])
def test_a_broken_template_is_named(tmp_path, text):
    template = tmp_path / "broken.j2"
    template.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(template))):
        render([operation()], template=template)


def test_the_script_writes_page_and_table(tmp_path, capsys):
    script, (_, file, serving), data = main_of("report"), make(tmp_path / "made", "forward"), tmp_path / "data"
    dataset(data, device="gfx950_mi355x", world=samples.measured())
    output = tmp_path / "reports/gfx950.html"
    words = ["--evaluation", file, "--kernels", serving / "kernels.json", "--dataset", data, "--call", CALL]
    words += ["--template", TEMPLATE, "--page", output, "--layers", output.with_suffix(".csv"), "--workflow", tmp_path]
    assert script([*map(str, words)]) == 0
    page = output.read_text(encoding="utf-8")
    assert "Made by\nno commit" in page and "simulated" in capsys.readouterr().out
    assert output.with_suffix(".csv").read_text().startswith("operation,arch,device,device_kind,problem_key,")
    file.write_text("{")
    assert script([*map(str, words)]) == 2 and "is not JSON" in capsys.readouterr().err


def test_the_pictures_show_the_figures_of_the_evaluation(html):
    one = sample()[0].evaluation
    said = re.search(r"<title>forward_bf16, pick: mean (.*?) %, P10 (.*?) %, least (.*?) %</title>", html).groups()
    assert said == tuple(f"{value:.1f}" for value in (one.efficiency.mean, one.efficiency.p10, one.efficiency.min))
    # Of one network of all operations: what is lost and won of the time of the fastest.
    (lost, won), found = re.search(r"<title>\S+: (.*?) % lost .*?, (-?[\d.]+) % won", html).groups(), sample()
    evaluations = [one.evaluation for one in found]
    whole = sum(one.time_us for one in evaluations)
    for value, name in ((lost, "sum_over_best"), (won, "sum_without_model")):
        base = [1.0 if name == "sum_over_best" else one.sum_over_best for one in evaluations]
        expected = sum(one.time_us * (getattr(one, name) - less) for one, less in zip(evaluations, base, strict=True))
        assert float(value) == pytest.approx(100 * expected / whole, abs=0.1)
