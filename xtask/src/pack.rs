//! The image and the package, for this machine's processor or another.

use std::path::PathBuf;
use std::process::Command;

use crate::commands::{Failure, built, call, cargo, root};

/// Debian's name of a processor, Rust's, and the compiler that links for it from elsewhere.
const PROCESSORS: [(&str, &str, &str); 2] = [
    ("amd64", "x86_64-unknown-linux-gnu", "x86_64-linux-gnu-gcc"),
    ("arm64", "aarch64-unknown-linux-gnu", "aarch64-linux-gnu-gcc"),
];

/// Packs what `build` left, or what is built here for another processor. `what` is `image` or `package`; of `args`,
/// `--arch` is looked at here, and the rest is the packaging program's.
pub fn pack(what: &str, args: &[String]) -> Result<(), Failure> {
    let mut rest = args.to_vec();
    let arch = match rest.iter().position(|arg| arg == "--arch") {
        Some(at) if at + 1 < rest.len() => rest.drain(at..at + 2).nth(1),
        Some(_) => return Err("--arch: say which, amd64 or arm64".to_owned()),
        None => None,
    };
    let mut command = Command::new(built("dnsweir-packaging"));
    let program = match arch {
        Some(arch) => built_for(&arch, &mut command)?,
        None => built("dnsweir"),
    };
    let out = root().join("target");
    command.arg("--program").arg(program);
    if !rest.iter().any(|arg| arg == "--out") {
        command.arg("--out").arg(out);
    }
    // What the image alone takes stands behind its name.
    let (name, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(|arg| arg.starts_with("--name"));
    call(command.args(rest).arg(what).args(name))
}

/// Packs what authors of filters get from registries, as it would be published: the SDK's crate, built once from what is in it, and
/// the interface, also in C and in Go. Publishes nothing.
pub fn sdk() -> Result<(), Failure> {
    call(cargo(["package", "--package", "dnsweir-filter", "--allow-dirty"]))?;
    let mut command = Command::new(built("dnsweir-packaging"));
    command.current_dir(root()).arg("--out").arg("target/package");
    call(command.arg("interface"))
}

/// Builds for another processor, and names the program.
fn built_for(arch: &str, packaging: &mut Command) -> Result<PathBuf, Failure> {
    let Some((_, target, linker)) = PROCESSORS.into_iter().find(|(name, ..)| *name == arch) else {
        return Err(format!("--arch {arch}: there are amd64 and arm64"));
    };
    let mut build = cargo(["build", "--release", "--package", "dnsweir", "--target", target]);
    let variable = target.to_uppercase().replace('-', "_");
    build.env(format!("CARGO_TARGET_{variable}_LINKER"), linker);
    build.env(format!("CC_{}", target.replace('-', "_")), linker);
    call(build)?;
    packaging.arg("--native").arg(built("dnsweir"));
    let folder = built("dnsweir")
        .ancestors()
        .nth(2)
        .map(|target| target.to_owned());
    Ok(folder.unwrap_or_default().join(target).join("release/dnsweir"))
}
