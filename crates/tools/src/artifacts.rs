//! `dnsweir filter push`, `pull` and `verify`: transfers modules to and from registries.

use std::fs;
use std::path::{Path, PathBuf};

use super::Stop;
use crate::config::{
    self, Key, Reference, Registries, Signatures, SignedBy, Signer, SigningIdentity, Span, TrustRoot,
};
use crate::filter::{self, Engine};
use crate::registry::policy::{self, Policy};
use crate::registry::{self, Artifact, Error, Pulled};

/// How a registry is asked.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Access {
    /// User names and passwords, as in docker's config.json [default: that of docker].
    #[arg(long, value_name = "FILE")]
    credentials: Option<PathBuf>,
    /// Authorities, in PEM, that sign the registry's certificate [default: those of the system].
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Connect without TLS.
    #[arg(long)]
    plain_http: bool,
}

impl Access {
    fn to(&self, reference: &Reference) -> Registries {
        let plain_http = self.plain_http.then(|| reference.registry.clone());
        Registries {
            credentials: self.credentials.clone().or_else(of_docker),
            ca: self.ca.clone(),
            plain_http: plain_http.into_iter().collect(),
            ..Registries::default()
        }
    }
}

/// Whose signature will do.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(required = true, multiple = true)]
pub struct Signers {
    /// Public key in PEM; may be repeated.
    #[arg(long, value_name = "FILE")]
    key: Vec<PathBuf>,
    /// Trusted root of sigstore in JSON, for signatures with a certificate.
    #[arg(long, value_name = "FILE", requires_all = ["subject", "issuer"])]
    trust_root: Option<PathBuf>,
    /// Address or URI that the certificate must have; a final `*` matches any ending.
    #[arg(long, requires = "trust_root", value_parser = subject)]
    subject: Option<String>,
    /// Issuer that the certificate must name.
    #[arg(long, requires = "trust_root", value_parser = issuer)]
    issuer: Option<String>,
}

fn subject(text: &str) -> Result<String, &'static str> {
    let known = config::is_subject(text).then(|| text.to_owned());
    known.ok_or(config::SUBJECT_HELP)
}

fn issuer(text: &str) -> Result<String, &'static str> {
    let known = config::is_issuer(text).then(|| text.to_owned());
    known.ok_or(config::ISSUER_HELP)
}

impl Signers {
    /// Reads the files, as if they were named in a configuration.
    fn read(&self) -> Result<Signatures, Stop> {
        let span = Span::default();
        let mut read = Signatures::default();
        for path in &self.key {
            let (name, pem) = (path.display().to_string(), text_of(path)?);
            read.keys.push(Key { name, pem, span });
        }
        if let (Some(path), Some(subject), Some(issuer)) = (&self.trust_root, &self.subject, &self.issuer) {
            let json = text_of(path)?;
            read.trust_root = Some(TrustRoot { json, span });
            let (name, subject, issuer) = (subject.clone(), subject.clone(), issuer.clone());
            read.identities.push(SigningIdentity {
                name,
                subject,
                issuer,
                span,
            });
        }
        Ok(read)
    }
}

/// Reads a text file that the user named.
pub(super) fn text_of(path: &Path) -> Result<String, Stop> {
    Ok(config::read_source(path)?.text().to_owned())
}

/// The path of docker's credentials, if they exist.
fn of_docker() -> Option<PathBuf> {
    let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker"));
    Some(folder.or_else(home)?.join("config.json")).filter(|path| path.is_file())
}

/// Parses a reference to an artifact.
fn reference(text: &str) -> Result<Reference, Stop> {
    match Reference::parse(text) {
        Some(Ok(reference)) => Ok(reference),
        Some(Err(wrong)) => Err(Stop::Refused(format!("{text:?} {wrong}"))),
        None => Err(Stop::Refused(format!(
            "{text:?} is not a reference: write oci://REGISTRY/NAME:TAG"
        ))),
    }
}

/// Waits for what a process does; `refused` adds to its message what it was about.
fn wait<T>(
    work: impl Future<Output = Result<T, Error>>,
    refused: impl FnOnce(String) -> String,
) -> Result<T, Stop> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Stop::Machine(error.to_string()))?;
    runtime.block_on(work).map_err(|error| match error {
        Error::Machine(error) => Stop::Machine(error),
        Error::Failed(error) => Stop::Refused(refused(error)),
    })
}

/// Pulls the artifact that `text` names, with its signatures.
///
/// # Errors
/// When it cannot be pulled, or is not a filter's artifact.
pub fn fetch(text: &str, access: &Access) -> Result<(Reference, Artifact), Stop> {
    let reference = reference(text)?;
    let registries = access.to(&reference);
    let pulled = registry::pull(&reference, &registries, None, true);
    match wait(pulled, |error| format!("{text} cannot be pulled: {error}"))? {
        Pulled::New(artifact) => Ok((reference, artifact)),
        Pulled::Unchanged => Err(Stop::Refused(format!(
            "{text} cannot be pulled: the registry sent nothing"
        ))),
    }
}

/// Pushes the module in a file, and returns its reference with the digest.
///
/// # Errors
/// When the file is not a module, or the registry refuses it.
pub fn push(file: &Path, text: &str, access: &Access) -> Result<String, Stop> {
    let reference = reference(text)?;
    let shown = file.display();
    let module = config::read_module(file)
        .map_err(|error| Stop::Refused(format!("{shown} cannot be read: {error}")))?;
    let engine = Engine::new()
        .map_err(|error| Stop::Machine(error.to_string()))?
        .compiling_aside();
    // Do not publish a module that cannot be used.
    filter::inspect(&engine, &module, &config::Limits::default())
        .map_err(|error| Stop::Refused(format!("{shown}: {error}")))?;
    let registries = access.to(&reference);
    let pushed = registry::push(module, &reference, &registries);
    let digest = wait(pushed, |error| format!("{text} cannot be pushed: {error}"))?;
    let named = reference.with_digest(&digest).to_string();
    let image = named.trim_start_matches("oci://");
    Ok(format!(
        "{named}\nto sign it: cosign sign --key cosign.key {image}\n"
    ))
}

/// Pulls a module into a file: `output`, or one named after the artifact.
///
/// # Errors
/// When it cannot be pulled, or the file cannot be written.
pub fn pull(text: &str, output: Option<&Path>, access: &Access) -> Result<String, Stop> {
    let (reference, artifact) = fetch(text, access)?;
    let name = reference.repository.rsplit('/').next().unwrap_or_default();
    let own = PathBuf::from(format!("{name}.wasm"));
    let output = output.unwrap_or(&own);
    fs::write(output, &artifact.module)
        .map_err(|error| Stop::Machine(format!("{} cannot be written: {error}", output.display())))?;
    let octets = artifact.module.len();
    Ok(format!(
        "{}: {octets} bytes\n{}\n",
        output.display(),
        reference.with_digest(&artifact.digest)
    ))
}

/// Reports which of the `signers` signed an artifact, for its own repository or the one given.
///
/// # Errors
/// When none did.
pub fn verify(
    text: &str,
    signers: &Signers,
    repository: Option<&str>,
    access: &Access,
) -> Result<String, Stop> {
    let (signatures, registries) = (signers.read()?, Registries::default());
    let wrong = policy::mistakes(&signatures).into_iter();
    let wrong: Vec<String> = wrong.map(|wrong| wrong.message).collect();
    if !wrong.is_empty() {
        return Err(Stop::Refused(wrong.join("\n")));
    }
    let policy = Policy::from(&signatures);
    wait(policy.check(&registries), |error| error)?;
    let (reference, artifact) = fetch(text, access)?;
    let wants = SignedBy {
        names: Vec::new(),
        repository: repository.map(str::to_owned),
    };
    let wanted = std::slice::from_ref(&wants);
    let signed = policy.signers(&artifact, wanted, &reference.repository, &registries);
    let signed = wait(signed, |why| format!("{text}: {why}"))?;
    // The command line requires a signer.
    let Some(Signer {
        name,
        says_repository,
    }) = signed.into_iter().next().flatten()
    else {
        return Err(Stop::Refused(format!(
            "{text}: name a key or an identity that must have signed it"
        )));
    };
    let unproved = match says_repository {
        true => "",
        false => {
            "the signature names no repository: it is also valid for this artifact under any other name\n"
        }
    };
    Ok(format!(
        "{}\nis signed with {name}\n{unproved}",
        reference.with_digest(&artifact.digest)
    ))
}
