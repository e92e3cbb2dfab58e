//! The container image: our programs, those that they run on a node, their libraries, and nothing else. No
//! shell, no package manager.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use crate::layout::{self, Layout};
use crate::source::Source;
use crate::system::{Package, System};
use crate::{Failure, bill, dependencies, licences, precompiled, programs, read, write};

/// Programs that write rules. Each file has several names, one per command.
const PROGRAMS: [(&str, &[&str]); 3] = [
    (
        "/usr/sbin/xtables-nft-multi",
        &[
            "iptables",
            "ip6tables",
            "iptables-save",
            "ip6tables-save",
            "iptables-nft",
            "ip6tables-nft",
            "iptables-nft-save",
            "ip6tables-nft-save",
        ],
    ),
    (
        "/usr/sbin/xtables-legacy-multi",
        &[
            "iptables-legacy",
            "ip6tables-legacy",
            "iptables-legacy-save",
            "ip6tables-legacy-save",
        ],
    ),
    ("/usr/sbin/nft", &[]),
];

/// Prefixes of the extensions for matches and targets in rules, including rules of other programs.
const EXTENSIONS: [&str; 3] = ["libxt_", "libipt_", "libip6t_"];

/// A user without capabilities. Pods use its number, since Kubernetes's `runAsNonRoot` cannot resolve names.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";

/// Empty folders with their modes; on separate volumes, they are only mount points.
const FOLDERS: [(&str, u32); 4] = [
    ("run", 0o755),
    ("tmp", 0o1777),
    ("etc/dnsweir", 0o755),
    ("var/cache/dnsweir", 0o755),
];

/// The configuration used if the operator mounts none: answers the clients that `clients` allows by default,
/// from the servers in the container's `resolv.conf`.
const CONFIGURATION: &str = include_str!("../image/dnsweir.kdl");

/// Writes the layout and the file, and returns their paths.
pub fn pack(
    source: &Source,
    system: &System,
    program: &Path,
    name: &str,
    out: &Path,
) -> Result<Vec<String>, Failure> {
    let root = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    fill(source, system, program, root.path())?;
    let (layout, manifest) = image(source, system, root.path(), name)?;
    let folder = out.join("image");
    layout.write(&folder)?;
    let tag = format!("{name}:{}", source.version);
    let mut files = layout.files()?;
    files.push(("manifest.json".into(), for_docker(&manifest, &tag)?));
    files.sort();
    let file = out.join(format!(
        "dnsweir-{}-{}.tar",
        source.version,
        system.processor().name()
    ));
    let mut tar = Builder::new(Vec::new());
    for (path, content) in &files {
        append(&mut tar, path, EntryType::Regular, 0o644, source.time, content)?;
    }
    write(&file, tar.into_inner().map_err(|error| error.to_string())?)?;
    Ok(vec![
        format!("{}: an OCI layout", folder.display()),
        format!(
            "{}: for ctr images import, docker load, podman load",
            file.display()
        ),
        format!("{tag} sha256:{}", layout::digits(&layout::encoded(&manifest)?)),
    ])
}

/// Fills the root folder.
fn fill(source: &Source, system: &System, program: &Path, root: &Path) -> Result<(), Failure> {
    let wrong = |error| format!("{}: {error}", root.display());
    for (folder, mode) in FOLDERS {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(wrong)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).map_err(wrong)?;
    }
    programs::install(program, &root.join("usr/bin"))?;
    precompiled::install(program, root)?;
    system.copy_libraries(root)?;
    let mut programs: Vec<String> = PROGRAMS.iter().map(|(file, _)| (*file).to_owned()).collect();
    programs.extend(system.files(
        &format!("/usr/lib/{}/xtables", system.processor().libraries()),
        &EXTENSIONS,
    )?);
    system.copy(&programs, root)?;
    for (file, names) in PROGRAMS {
        for name in names {
            let target = Path::new(file).file_name().unwrap_or_default();
            symlink(target, root.join("usr/sbin").join(name)).map_err(wrong)?;
        }
    }
    write(&root.join("etc/passwd"), PASSWD)?;
    write(&root.join("etc/group"), GROUP)?;
    write(&root.join("etc/dnsweir/dnsweir.kdl"), CONFIGURATION)?;
    describe(source, system, root)
}

/// Writes the licences and the bill of materials for everything in the image.
fn describe(source: &Source, system: &System, root: &Path) -> Result<(), Failure> {
    let files: Vec<String> = walk(root)?
        .iter()
        .filter(|path| path.is_file() && !path.is_symlink())
        .filter_map(|path| Some(format!("/{}", path.strip_prefix(root).ok()?.display())))
        .collect();
    let packages = system.packages(&files)?;
    for (Package { name, .. }, copyright) in &packages {
        write(&root.join(format!("usr/share/doc/{name}/copyright")), copyright)?;
    }
    let dependencies = dependencies::of(source, system.processor().target())?;
    let folder = root.join("usr/share/doc/dnsweir");
    let licence = source.root.join("LICENSE");
    write(&folder.join("LICENSE"), read(&licence)?)?;
    write(
        &folder.join("THIRD-PARTY-LICENSES"),
        licences::text(&dependencies)?,
    )?;
    let bill = bill::spdx(source, system.processor(), &dependencies, packages.keys())?;
    write(&folder.join("sbom.spdx.json"), bill)
}

/// Returns a layout with the image tagged by its version, and the descriptor of its manifest.
fn image(source: &Source, system: &System, root: &Path, name: &str) -> Result<(Layout, Value), Failure> {
    let mut layout = Layout::default();
    let tar = layer(root, source.time)?;
    let config = config(source, system, &layout::digits(&tar))?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": layout::MANIFEST,
        "config": layout.add_json("application/vnd.oci.image.config.v1+json", &config)?,
        "layers": [layout.add("application/vnd.oci.image.layer.v1.tar+gzip", layout::compressed(&tar)?)],
        "annotations": labels(source)?,
    });
    let mut described = layout.add_json(layout::MANIFEST, &manifest)?;
    described["platform"] = json!({ "architecture": system.processor().name(), "os": "linux" });
    layout.tag(&described, source.version, Some(name));
    Ok((layout, manifest))
}

/// The manifest that older versions of `docker load` read; it refers to the same files.
fn for_docker(manifest: &Value, tag: &str) -> Result<Vec<u8>, Failure> {
    let path = |described: &Value| {
        let digest = described["digest"].as_str().unwrap_or_default();
        layout::path_of(digest.trim_start_matches("sha256:"))
    };
    layout::encoded(&json!([{
        "Config": path(&manifest["config"]), "RepoTags": [tag], "Layers": [path(&manifest["layers"][0])],
    }]))
}

/// The image configuration.
fn config(source: &Source, system: &System, layer: &str) -> Result<Value, Failure> {
    Ok(json!({
        "created": source.date()?,
        "architecture": system.processor().name(),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/sbin:/usr/bin"],
            "Entrypoint": ["/usr/bin/dnsweir"],
            "Cmd": ["run", "--config", "/etc/dnsweir/dnsweir.kdl", "--compiled-cache", "/var/cache/dnsweir/compiled"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": labels(source)?,
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        "history": [{"created": source.date()?, "created_by": "cargo xtask image"}],
    }))
}

/// Labels with the names of the OCI image specification.
pub(crate) fn labels(source: &Source) -> Result<Value, Failure> {
    let mut labels = json!({
        "org.opencontainers.image.title": "dnsweir",
        "org.opencontainers.image.description": "A caching DNS proxy for one node, with filters in sandboxed WebAssembly",
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.created": source.date()?,
    });
    if let Some(commit) = &source.commit {
        labels["org.opencontainers.image.revision"] = commit.as_str().into();
    }
    if let Some(repository) = &source.repository {
        labels["org.opencontainers.image.source"] = repository.as_str().into();
    }
    Ok(labels)
}

/// Packs a folder as a layer: sorted by path, owned by root, with a fixed time.
pub(crate) fn layer(root: &Path, time: u64) -> Result<Vec<u8>, Failure> {
    let mut tar = Builder::new(Vec::new());
    for path in walk(root)? {
        let name = path
            .strip_prefix(root)
            .unwrap_or(&path)
            .to_string_lossy()
            .into_owned();
        let metadata = path
            .symlink_metadata()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let mut header = header(EntryType::Symlink, 0o777, time, 0);
            let done = tar.append_link(&mut header, &name, target);
            done.map_err(|error| format!("{name}: {error}"))?;
        } else if metadata.is_dir() {
            let mode = metadata.permissions().mode() & 0o1000 | if name == "tmp" { 0o777 } else { 0o755 };
            append(
                &mut tar,
                &format!("{name}/"),
                EntryType::Directory,
                mode,
                time,
                &[],
            )?;
        } else {
            let executable = metadata.permissions().mode() & 0o111 != 0;
            let content = read(&path)?;
            let mode = if executable { 0o755 } else { 0o644 };
            append(&mut tar, &name, EntryType::Regular, mode, time, &content)?;
        }
    }
    tar.into_inner().map_err(|error| error.to_string())
}

fn append(
    tar: &mut Builder<Vec<u8>>,
    path: &str,
    kind: EntryType,
    mode: u32,
    time: u64,
    content: &[u8],
) -> Result<(), Failure> {
    let mut header = header(kind, mode, time, content.len() as u64);
    let done = tar.append_data(&mut header, path, content);
    done.map_err(|error| format!("{path}: {error}"))
}

fn header(kind: EntryType, mode: u32, time: u64, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(time);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(size);
    header
}

/// All paths below a folder, sorted.
pub(crate) fn walk(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let wrong = |error| format!("{}: {error}", folder.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        if path.is_dir() && !path.is_symlink() {
            paths.extend(walk(&path)?);
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}
