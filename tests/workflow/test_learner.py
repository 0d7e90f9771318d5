"""A learner from outside of the checkout, through the workflow: the example of docs/research.md on the page's data."""

import re

from small_workflow import ROOT


def test_the_example_of_the_page_is_trained_evaluated_and_reported(fresh):
    section = (ROOT / "docs/research.md").read_text().split("\n### Another learner\n")[1].split("\n#")[0]
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```$", section)
    (fresh.folder / "my_learner.py").write_text(code)
    fresh.configure(model={"learner": "my_learner:Linear"})
    assert "so its models are not published" in fresh.refuse("results/models/sm_90")
    fresh.make("results/evaluation/sm_90/forward_bf16.json", "results/reports/sm_90.html")
    log = (fresh.folder / "logs/sm_90/forward_bf16/evaluation.log").read_text().splitlines()[-1]
    # The layers, the mean with its interval, P10 and the best fixed candidate, as the page prints them.
    assert log.partition(": ")[2] in " ".join(section.split())
