import io
import shutil
import tarfile
from pathlib import Path

import pytest

from longtail._errors import DataError
from longtail.data.sources import SourceError
from longtail.data.sources.extract import extract_deb, extract_tar
from tests.support.archives import write_tar


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_an_archive_is_unpacked(tmp_path: Path) -> None:
    extract_tar(write_tar(tmp_path / "a.tgz", {"./x/1.bin": b"one", "2.bin": b"two"}), tmp_path / "out")
    assert (tmp_path / "out" / "x" / "1.bin").read_bytes() == b"one"
    assert everything(tmp_path / "out") == {"x/1.bin", "2.bin"}


@pytest.mark.parametrize("name", ["../evil", "x/../../evil", "/tmp/longtail-evil", "..\\evil"])
def test_an_archive_that_reaches_outside_is_refused_as_a_whole(tmp_path: Path, name: str) -> None:
    archive = write_tar(tmp_path / "a.tgz", {"good": b"1", name: b"2"})
    with pytest.raises(DataError, match="would be written outside the folder") as caught:
        extract_tar(archive, tmp_path / "in" / "out")
    assert caught.value.code == "unsafe-archive"
    assert caught.value.exit_code == 3
    assert everything(tmp_path) == {"a.tgz"}
    assert not Path("/tmp/longtail-evil").exists()


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        link = tarfile.TarInfo("door")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "victim")
        archive.addfile(link)
        info = tarfile.TarInfo("door/evil")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    extract_tar(tmp_path / "a.tar", tmp_path / "out")
    assert everything(tmp_path / "victim") == set()
    assert everything(tmp_path / "out") == {"door/evil"}


@pytest.mark.parametrize("keep", [0, 30, -40])
def test_a_broken_archive_is_a_source_that_failed(tmp_path: Path, keep: int) -> None:
    archive = write_tar(tmp_path / "a.tgz", {"x": bytes(range(256)) * 40})
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(SourceError, match=r"a\.tgz is not a complete archive"):
        extract_tar(archive, tmp_path / "out")


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").symlink_to("/dev/full")
    with pytest.raises(DataError, match="no space is left on the disk") as caught:
        extract_tar(write_tar(tmp_path / "a.tgz", {"x": bytes(10_000)}), tmp_path / "out")
    assert caught.value.code == "no-space"


def test_a_debian_package_is_unpacked(tmp_path: Path) -> None:
    data = write_tar(tmp_path / "data.tar.xz", {"./usr/share/datasets/x.gz": b"images"}, mode="w:xz")
    control = write_tar(tmp_path / "control.tar.xz", {"./control": b"Package: x"}, mode="w:xz")
    (tmp_path / "debian-binary").write_bytes(b"2.0\n")
    package = tmp_path / "x.deb"
    members = {"debian-binary": b"2.0\n", control.name: control.read_bytes(), data.name: data.read_bytes()}
    with package.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, content in members.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode())
            file.write(content + b"\n" * (len(content) % 2))
    extract_deb(package, tmp_path / "out")
    assert everything(tmp_path / "out") == {"usr/share/datasets/x.gz"}
    with pytest.raises(SourceError, match="is not a Debian package"):
        extract_deb(data, tmp_path / "out")


@pytest.mark.parametrize("size", ["-60", "x", "", "1e3"])
def test_a_member_of_an_absurd_size_is_refused_and_does_not_loop(tmp_path: Path, size: str) -> None:
    header = f"{'control':<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{size:<10}`\n"
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n" + header.encode("ascii") * 2)
    with pytest.raises(SourceError, match="a member has the size"):
        extract_deb(tmp_path / "a.deb", tmp_path / "out")


def test_a_member_that_is_larger_than_its_package_is_not_read(tmp_path: Path) -> None:
    header = f"{'data.tar.xz':<16}{'0':<12}{'0':<6}{'0':<6}{'644':<8}{9_999_999_999:<10}`\n"
    (tmp_path / "a.deb").write_bytes(b"!<arch>\n" + header.encode("ascii"))
    with pytest.raises(SourceError, match=r"data\.tar\.xz has 9,999,999,999 bytes"):
        extract_deb(tmp_path / "a.deb", tmp_path / "out")


def test_an_archive_that_is_larger_than_the_disk_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    member = tarfile.TarInfo("zeros")
    member.size = 2 * shutil.disk_usage(tmp_path).free // 512 * 512
    with (tmp_path / "a.tar").open("wb") as file:
        file.write(member.tobuf())
        file.truncate(512 + member.size + 1024)  # a hole, which takes no room
    with pytest.raises(DataError, match="MB of free space, but"):
        extract_tar(tmp_path / "a.tar", tmp_path / "out")
    assert everything(tmp_path / "out") == set()
