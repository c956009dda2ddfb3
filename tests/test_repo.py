"""The repository's own rules: pins, sizes, docstrings, languages, what an import may load."""

import ast
import re
import string
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted([ROOT / "app.py", *(ROOT / "attnviz").rglob("*.py"), *(ROOT / "pages").rglob("*.py")])
RUN_COMMAND = "python -m pip install -r requirements.txt && python -m streamlit run app.py"
TEST_COMMAND = "python tests/run.py"
MODULE_LINES = 300
FUNCTION_LINES = 60
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.]*(; [a-z_=!<>\"'A-Z0-9. ]+)?")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def flat(table: dict, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def locale(language: str) -> dict[str, str]:
    return dict(flat(tomllib.loads((ROOT / "pages/locales" / f"{language}.toml").read_text(encoding="utf-8"))))


def fields(text: str) -> list[str]:
    return sorted(field for _, field, _, _ in string.Formatter().parse(text) if field is not None)


def test_both_languages_have_the_same_keys():
    assert set(locale("en")) == set(locale("zh"))


def test_both_languages_have_the_same_fields():
    english, chinese = locale("en"), locale("zh")
    assert {key: fields(text) for key, text in english.items()} == {key: fields(text) for key, text in chinese.items()}


def test_no_text_is_empty():
    assert [key for language in ("en", "zh") for key, text in locale(language).items() if not text.strip()] == []


@pytest.mark.parametrize("file", ["requirements.txt", "tests/requirements.txt"])
def test_requirements_are_pinned_exactly(file):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert lines
    assert [line for line in lines if not PIN.fullmatch(line)] == []


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_a_module_says_what_it_is_and_stays_short(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree), "no module docstring"
    assert len(source.splitlines()) <= MODULE_LINES
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    sizes = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in functions}
    assert {function: size for function, size in sizes.items() if size > FUNCTION_LINES} == {}


def public(node: ast.Module | ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not child.name.startswith("_"):
            yield child


def test_every_public_name_of_the_package_says_what_it_gives():
    """What a class does as one that it comes from says, it need not say again."""
    trees = {
        path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES if path.is_relative_to(ROOT / "attnviz")
    }
    classes = {entry.name: entry for tree in trees.values() for entry in tree.body if isinstance(entry, ast.ClassDef)}

    def said(owner: ast.ClassDef, name: str) -> bool:
        own = any(entry.name == name and ast.get_docstring(entry) for entry in public(owner))
        bases = [
            classes[word.id] for base in owner.bases for word in ast.walk(base) if getattr(word, "id", "") in classes
        ]
        return own or any(said(base, name) for base in bases)

    silent = []
    for path, tree in trees.items():
        for entry in public(tree):
            silent += [] if ast.get_docstring(entry) else [f"{name(path)}: {entry.name}"]
            members = public(entry) if isinstance(entry, ast.ClassDef) else ()
            silent += [f"{name(path)}: {entry.name}.{one.name}" for one in members if not said(entry, one.name)]
    assert silent == []


@pytest.mark.parametrize("command", [RUN_COMMAND, TEST_COMMAND])
def test_the_readme_gives_the_real_commands(command):
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")


def test_ci_runs_the_test_command():
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "export CI=1" in script
    assert re.search(r"^exec .*tests/run\.py", script, re.MULTILINE)


@pytest.mark.parametrize(
    "module", ["attnviz", "attnviz.figures", "attnviz.text", "attnviz.registry", "attnviz.units", "attnviz.knobs"]
)
def test_light_modules_load_no_torch(module):
    code = f"import sys, {module}; print(sorted({{'torch', 'streamlit'}} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted((ROOT / "attnviz/figures").glob("*.py")), ids=name)
def test_of_attnviz_figures_import_only_text_and_units(path):
    known = ("attnviz.text", "attnviz.units", "attnviz.figures")
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {entry.name for entry in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            imported |= {f"{node.module}.{entry.name}" for entry in node.names}
    assert {entry for entry in imported if entry.startswith("attnviz") and not entry.startswith(known)} == set()
