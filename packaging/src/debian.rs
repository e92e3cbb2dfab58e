//! The Debian package: the programs, manual pages, completions, a systemd unit, and a configuration file.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source::Source;
use crate::system::System;
use crate::{
    Failure, bill, dependencies, image, licences, manual, output, precompiled, programs, read, write,
};

/// Files packaged as they are, and their destinations.
const FILES: [(&str, &str); 2] = [
    ("packaging/debian/dnsweir.kdl", "etc/dnsweir/dnsweir.kdl"),
    (
        "packaging/debian/dnsweir.service",
        "lib/systemd/system/dnsweir.service",
    ),
];

/// Documents that messages of the program and the files above refer to.
const DOCUMENTS: [&str; 13] = [
    "configuration.md",
    "coredns.md",
    "filters.md",
    "guide.md",
    "languages.md",
    "limits.md",
    "node.md",
    "operations.md",
    "trust.md",
    "reference/memory.md",
    "reference/metrics.md",
    "reference/mistakes.md",
    "reference/test-cases.md",
];

/// Shells and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/dnsweir"),
    ("zsh", "usr/share/zsh/vendor-completions/_dnsweir"),
    ("fish", "usr/share/fish/vendor_completions.d/dnsweir.fish"),
];

/// Writes the package, and returns its path.
pub fn pack(
    source: &Source,
    system: &System,
    program: &Path,
    native: &Path,
    out: &Path,
) -> Result<Vec<String>, Failure> {
    let root = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    fill(source, system, program, native, root.path())?;
    control(source, system, root.path())?;
    set_modes(root.path())?;
    let file = out.join(format!(
        "dnsweir_{}_{}.deb",
        source.version,
        system.processor().name()
    ));
    // dpkg-deb sets this time on everything, and root as the owner.
    output(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "--build"])
            .arg(root.path())
            .arg(&file)
            .env("SOURCE_DATE_EPOCH", source.time.to_string()),
    )?;
    Ok(vec![format!("{}: for dpkg -i and apt install", file.display())])
}

fn fill(source: &Source, system: &System, program: &Path, native: &Path, root: &Path) -> Result<(), Failure> {
    programs::install(program, &root.join("usr/bin"))?;
    precompiled::install(program, root)?;
    for (from, to) in FILES {
        write(&root.join(to), read(&source.root.join(from))?)?;
    }
    for (shell, to) in COMPLETIONS {
        manual::completions(native, shell, &root.join(to))?;
    }
    for page in manual::pages(native, &root.join("usr/share/man/man1"))? {
        output(Command::new("gzip").args(["-9", "-n"]).arg(page))?;
    }
    let documents = root.join("usr/share/doc/dnsweir");
    for document in DOCUMENTS {
        write(
            &documents.join(document),
            read(&source.root.join("docs").join(document))?,
        )?;
    }
    let dependencies = dependencies::of(source, system.processor().target())?;
    write(&documents.join("copyright"), copyright(source)?)?;
    write(
        &documents.join("THIRD-PARTY-LICENSES"),
        licences::text(&dependencies)?,
    )?;
    let bill = bill::spdx(source, system.processor(), &dependencies, std::iter::empty())?;
    write(&documents.join("sbom.spdx.json"), bill)
}

/// Debian includes the text of this licence, so a package only refers to it (Debian Policy 12.5).
fn copyright(source: &Source) -> Result<String, Failure> {
    let notice = source.root.join("LICENSE");
    if !notice.is_file() {
        return Err(format!("no {}", notice.display()));
    }
    Ok("dnsweir is under the Apache License, Version 2.0, which is in /usr/share/common-licenses/Apache-2.0.\n\
        What is linked into it, and under which licences, is in THIRD-PARTY-LICENSES beside this file.\n"
        .into())
}

/// Writes the control files.
fn control(source: &Source, system: &System, root: &Path) -> Result<(), Failure> {
    let folder = root.join("DEBIAN");
    let glibc = system.programs.glibc;
    let (major, minor) = glibc.ok_or("the programs do not say which glibc they need")?;
    let size = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(root))?;
    let kibibytes = size.split_whitespace().next().unwrap_or_default();
    let homepage = source.repository.as_ref();
    let homepage = homepage.map_or_else(String::new, |url| format!("Homepage: {url}\n"));
    let text = format!(
        "Package: dnsweir\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: The dnsweir authors <maintainers@dnsweir.invalid>\n\
         Installed-Size: {kibibytes}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1\n\
         Suggests: iptables, nftables\n\
         Section: net\n\
         Priority: optional\n\
         {homepage}\
         Description: caching DNS proxy with filters in sandboxed WebAssembly\n \
         Answers the programs of one machine, or the pods of one Kubernetes node, from a\n \
         cache, and asks other servers for the rest. One file configures which way a query\n \
         takes. Filters, small WebAssembly programs that can be replaced without a\n \
         restart, decide what else happens to it.\n",
        source.version,
        system.processor().name(),
    );
    write(&folder.join("control"), text)?;
    write(&folder.join("conffiles"), "/etc/dnsweir/dnsweir.kdl\n")?;
    for script in ["preinst", "postinst", "prerm", "postrm"] {
        let from = source.root.join("packaging/debian").join(script);
        let to = folder.join(script);
        write(&to, read(&from)?)?;
        make_executable(&to)?;
    }
    Ok(())
}

/// Sets the modes of everything, which dpkg-deb packs as they are: the umask must not decide them.
fn set_modes(root: &Path) -> Result<(), Failure> {
    for path in image::walk(root)?.iter().map(PathBuf::as_path).chain([root]) {
        let metadata = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let executable = metadata.is_dir() || metadata.permissions().mode() & 0o111 != 0;
        set_mode(path, if executable { 0o755 } else { 0o644 })?;
    }
    Ok(())
}

fn make_executable(path: &Path) -> Result<(), Failure> {
    set_mode(path, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    let done = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    done.map_err(|error| format!("{}: {error}", path.display()))
}
