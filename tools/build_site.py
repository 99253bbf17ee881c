"""Build the documentation site from the Markdown pages, strictly, and check every link of the result.

    python -m tools.build_site [--out build/site]

The pages are read on a forge as they are. For the site they are copied beside the studies' READMEs, and links to files
of the repository that are no pages become plain text. A warning of the generator is an error. The site opens from disk:
where the generator would load a script of another host for the search, it gets docs/search_from_disk.js.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
HOSTED_SHIM = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")


def page_places(root: Path = ROOT) -> dict[Path, Path]:
    """Each source page with its place in the site."""
    places = {page: page.relative_to(root / "docs") for page in sorted((root / "docs").rglob("*")) if page.is_file()}
    for study in sorted((root / "benchmarks").glob("**/README.md")):
        places[study] = Path("studies") / f"{study.parent.name}.md"
    return places | {root / "CONTRIBUTING.md": Path("contributing.md"), root / "CHANGELOG.md": Path("changelog.md")}


def stage_pages(pages: Path, root: Path = ROOT) -> None:
    """Copy all pages to the folder `pages`, with links that hold there."""
    shutil.rmtree(pages, ignore_errors=True)
    places = page_places(root)
    for source, place in places.items():
        target = pages / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(relink(source, places), encoding="utf-8")
        else:
            shutil.copyfile(source, target)


def relink(source: Path, places: dict[Path, Path]) -> str:
    """The text of a page with the links of its place in the site."""

    def moved(match: re.Match[str]) -> str:
        picture, words, address = match.groups()
        path, _, anchor = address.partition("#")
        if not path or urlsplit(address).scheme:
            return match[0]
        found = places.get((source.parent / path).resolve())
        if found is None:
            return words
        there = Path(os.path.relpath(found, places[source].parent)).as_posix()
        return f"{picture}[{words}]({there}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(^```.*?^```$)", source.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


class _Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 # the parser's
        """Note the anchors and links of any element."""
        found = dict(attrs)
        self.anchors |= {value for value in (found.get("id"), found.get("name")) if value}
        for name in ("href", "src", "srcset"):
            if found.get(name):
                self.links.add(str(found[name]))


def broken_links(site: Path) -> Iterator[str]:
    """Each link of the site to a page, file or anchor of it that is not there, or to another host's script or style."""
    pages = {}
    for path in site.rglob("*.html"):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        if path.name == "404.html":  # served from any depth, so its links have no place of their own
            continue
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else None
            if not target.exists() or (
                parts.fragment and anchors is not None and unquote(parts.fragment) not in anchors
            ):
                yield f"{path.relative_to(site)}: {link}"


def build_site(out: Path) -> None:
    """Build the site in `out`; exits with what is wrong."""
    stage_pages(ROOT / "build" / "pages")
    shutil.rmtree(ROOT / "build" / "site", ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    if done.returncode or re.search(r"\b(warning|error)s?\b", done.stdout, flags=re.IGNORECASE):
        sys.exit("the site has warnings")
    site = ROOT / "build" / "site"
    for page in site.rglob("*.html"):
        shim = Path(os.path.relpath(site / "search_from_disk.js", page.parent)).as_posix()
        page.write_text(page.read_text(encoding="utf-8").replace(HOSTED_SHIM, shim), encoding="utf-8")
    broken = list(broken_links(site))
    if broken:
        sys.exit("\n".join(["links that lead nowhere:", *broken]))
    if out != site:
        shutil.copytree(site, out, dirs_exist_ok=True)
    print(f"{out}/index.html")


def main() -> None:
    """Build it."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    build_site(parser.parse_args().out)


if __name__ == "__main__":
    main()
