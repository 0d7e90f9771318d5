"""Find sentences that are not plain English in the pages written by hand, and in the messages of the code.

``make lint`` runs it. The tables RULES and WORDS list what is refused; a sentence also has a bound on its words.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 35
"""Words of a sentence."""
RULES: tuple[tuple[str, str], ...] = (
    (r"^(What|Who|Whoever|Whatever) (?!.*\?$)", "begin with the subject, not with 'what' or 'who'"),
    (r"^(Of|Among|To|From|In|On|With) (the|a|an|its|these|this|those|each|such) [^,:]*,? (is|are|was|were) [a-z]+",
     "begin with the subject, not with its place"),
    (r"^(Neither|Nor|Nowhere|Not only|Only (then|where|when)|Hardly|Seldom|Never (is|are|was|does|do|did|has))\b",
     "begin with the subject"),
    (r"\bso (does|do|did|is|are|was|were) (nobody|nothing|none|no one)\b", "say who does what"),
    (r"\bsuch (a )?one\b|\bthat there is\b|\bwhat there is\b", "name the thing"),
    (r"\b(told|said|listed|named|counted|refused|stands?) with its reason\b", "write 'and gives the reason'"),
    (r"\b(is|are|was|were) told\b", "say who prints it"),
    (r"\b(in vain|as it were|to be had|at will|be it|let alone|save for|lest|whence|thereof|therein|whereof|wherein"
     r"|hitherto|henceforth|whosoever|withal|amiss|aught|naught)\b", "use an everyday word"),
    (r"\bnothing but\b|\bnone but\b|\ball but\b", "write 'only' or 'except'"),
    (r"\bit is (not )?[\w-]+ that (decides?|counts?|matters?|makes?|says?)\b", "begin with the subject"),
    (r"^(There|Here) (be|lies|stands|belongs)\b", "begin with the subject"),
    (r"\b(is|are) no (?!longer\b)\w+ (of|for) ", "write 'is not a'"),
)  # fmt: skip
"""Pattern of a sentence of the pages, and what to do instead."""
WORDS: tuple[tuple[str, str], ...] = (
    (r"\b(pairs|lines|kernels|jobs|rows|problems|bytes|candidates|channels|waves|values|hours|taps|samples|one|two)"
     r" an? (problem|operation|kernel|chunk|pair|job|group|lane|wave|block|element|class|unit|layer|row|line|axis)\b",
     "write 'per'"),
    (r"\b(stands?|lies?) (in|at|on|behind|beside|below|between|there|under|outside)\b|\b(has|have) to (lie|stand)\b",
     "write 'is'"),
    (r"\b(is|are|was|were|be) (told|asked|wanted|said)\b|\basked for\b", "write 'requested' or 'printed'"),
    (r"\b(is|are|was|were|be) given up\b", "write 'is excluded' or 'is abandoned'"),
    (r"\b(judge[sd]?|judging)\b", "write 'evaluate', 'validate' or 'compare'"),
    (r"\b[Mm]end(s|ed)?\b", "write 'fix' or 'correct'"),
    (r"\b(the|near the) roof\b", "write 'roofline'"),
    (r"\boctaves to\b", "write 'distance to'"),
    (r"\bbut for nothing\b|\benough for a loss\b|\bwhat is made\b", "write it plainly"),
    (r"\b(program|process|worker|writer|stage|kernel|command|rule)s? who\b", "write 'which'"),
    (r"\b(is|are|was|were) there(?= already| twice|[.,;:]|$)", "write 'exists'"),
    (r"\bwhat (is|was|were) (lost|learnt|known|given)\b", "name the thing"),
    (r"\bknows? no\b|\bknows? (neither|nothing)\b", "write 'does not support' or 'without'"),
)  # fmt: skip
"""The same of single words: of the pages, and of the messages of the code."""
_FENCE = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_END = re.compile(r"(?<=[.?!:])\s+(?=[A-Z`*\"(])")


def pages() -> list[Path]:
    """The pages that are written by hand: those of docs/ that are not generated, and three beside it."""
    docs = ROOT / "docs"
    found = [path for path in docs.rglob("*.md") if "generated" not in path.relative_to(docs).parts]
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(found)]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page: paragraphs, items of lists and cells of tables; no code and no headings."""
    text = _FENCE.sub("\n", _COMMENT.sub("", text))
    blocks: list[str] = []
    for line in text.splitlines():
        bare = line.strip()
        if bare.startswith("|"):
            blocks += ["", *(cell for cell in bare.strip("|").split("|") for cell in (cell, "")), ""]
        elif not bare or bare.startswith("#"):
            blocks.append("")
        elif item := re.match(r"(?:[*+-]|\d+\.) +(.*)", bare):
            blocks += ["", item[1]]
        else:
            blocks.append(bare)
    for block in re.split(r"\n\n+", "\n".join(blocks)):
        flat = " ".join(_LINK.sub(r"\1", block).replace("**", "").split())
        yield from (part for part in _END.split(flat) if part)


def faults(text: str) -> Iterator[tuple[str, str]]:
    """Each sentence of a page that is not plain, with what to do."""
    for sentence in sentences(text):
        for pattern, advice in RULES:
            if re.search(pattern, sentence) and sentence[-1] in ".:;?!":
                yield sentence, advice
        yield from private_phrases(sentence)
        if (words := len(re.findall(r"\w[\w'’.-]*", re.sub(r"`[^`]*`", "x", sentence)))) > MOST_WORDS:
            yield sentence, f"{words} words; write at most {MOST_WORDS}"


def private_phrases(text: str) -> Iterator[tuple[str, str]]:
    """The text with what to do, for each pattern of ``WORDS`` that it contains."""
    yield from ((text, advice) for pattern, advice in WORDS if re.search(pattern, re.sub(r"`[^`]*`", "x", text)))


def messages(text: str) -> Iterator[str]:
    """The texts of several words in a module that are not docstrings: messages, helps, labels."""
    nodes = list(ast.walk(ast.parse(text)))
    hidden = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    joined = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    hidden |= {id(value) for node in joined for value in node.values}
    for node in joined:
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in hidden:
            yield node.value


def main() -> int:
    """Print each fault with its page; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path, help="pages to check (default: all that are written by hand)")
    chosen = parser.parse_args().pages
    found = [
        f"{path}: {advice}\n    {sentence}"
        for path in chosen or pages()
        for sentence, advice in faults(path.read_text())
    ]
    for path in [] if chosen else sorted((ROOT / "src").rglob("*.py")):
        for message in messages(path.read_text()):
            found += [f"{path}: {advice}\n    {' '.join(message.split())}" for _, advice in private_phrases(message)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
