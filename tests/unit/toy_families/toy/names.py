"""Names as others write them: there is one scheme."""

from toy_families.toy.kernel import parse


def completed(name, arch):
    return parse(name), ""
