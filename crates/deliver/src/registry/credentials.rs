//! Credentials for registries, from docker's `config.json`, as the kubelet reads it.
//!
//! The file is read for every pull, so that passwords can be replaced while the proxy runs. Credential
//! helpers (`credsStore`, `credHelpers`) are not run, and identity tokens are not exchanged: both are
//! refused, with their names.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

/// The largest file in bytes.
const LARGEST: u64 = 1 << 20;

/// Docker Hub's name in references, and in these files.
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_KEY: &str = "index.docker.io";

/// A user name and a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({:?})", self.user)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    #[serde(default)]
    auths: BTreeMap<String, Auth>,
    creds_store: Option<String>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
    registrytoken: Option<String>,
}

/// Returns the credentials in the file at `path` for a `repository` at a `host`; `None` for anonymous access.
///
/// # Errors
/// When the file cannot be read, or has something unsupported for this host.
pub(super) fn find(path: &Path, host: &str, repository: &str) -> Result<Option<Credentials>, String> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LARGEST).read_to_string(&mut text))
        .map_err(|error| format!("the credentials {} cannot be read: {error}", path.display()))?;
    find_in(&text, host, repository).map_err(|wrong| format!("the credentials {}: {wrong}", path.display()))
}

fn find_in(text: &str, host: &str, repository: &str) -> Result<Option<Credentials>, String> {
    // Not the parser's message: it may quote a password.
    let file: ConfigFile = serde_json::from_str(text)
        .map_err(|error| format!("line {} is not as in docker's config.json", error.line()))?;
    let matching = file
        .auths
        .iter()
        .filter_map(|(key, auth)| Some((precision(key, host, repository)?, key, auth)));
    // The longest path is the most specific.
    let best = matching.max_by_key(|(precision, ..)| *precision);
    if let Some((_, key, auth)) = best {
        return decode(auth).map_err(|wrong| format!("{key:?} {wrong}"));
    }
    if let Some(helper) = file.cred_helpers.get(host).or(file.creds_store.as_ref()) {
        return Err(format!(
            "{host} is left to the program docker-credential-{helper}, and programs are not run: write a user name and a password"
        ));
    }
    Ok(None)
}

fn decode(auth: &Auth) -> Result<Option<Credentials>, String> {
    let token = [
        ("identitytoken", &auth.identitytoken),
        ("registrytoken", &auth.registrytoken),
    ];
    if let Some((name, _)) = token
        .iter()
        .find(|(_, token)| token.as_ref().is_some_and(|token| !token.is_empty()))
    {
        return Err(format!(
            "has an `{name}`, which is not supported: write a user name and a password"
        ));
    }
    if let (Some(user), Some(password)) = (&auth.username, &auth.password) {
        return Ok(Some(Credentials {
            user: user.clone(),
            password: password.clone(),
        }));
    }
    let Some(auth) = auth.auth.as_ref().filter(|auth| !auth.is_empty()) else {
        return Ok(None);
    };
    let decoded = STANDARD
        .decode(auth)
        .ok()
        .and_then(|octets| String::from_utf8(octets).ok());
    let pair = decoded.as_deref().and_then(|text| text.split_once(':'));
    let (user, password) = pair.ok_or("has an `auth` that is not USER:PASSWORD in base 64")?;
    Ok(Some(Credentials {
        user: user.to_owned(),
        password: password.to_owned(),
    }))
}

/// Returns how specifically a key of `auths` matches this repository, if it does. A key may have a scheme, a
/// path, and `*` for parts of the host.
fn precision(key: &str, host: &str, repository: &str) -> Option<usize> {
    let key = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"))
        .unwrap_or(key);
    let (known, path) = key.split_once('/').unwrap_or((key, ""));
    let path = path.trim_end_matches('/');
    let hub = [DOCKER_HUB, DOCKER_HUB_KEY];
    if hub.contains(&known) {
        // Its key ends in an API version.
        return hub.contains(&host).then_some(0);
    }
    if !is_host(known, host) {
        return None;
    }
    let path = if ["v1", "v2"].contains(&path) { "" } else { path };
    let below = repository.strip_prefix(path)?;
    (path.is_empty() || below.is_empty() || below.starts_with('/')).then_some(path.len())
}

/// Returns whether a host matches a pattern, in which `*` stands for anything between two dots.
fn is_host(known: &str, host: &str) -> bool {
    if !known.contains('*') {
        return known == host;
    }
    let (known, host): (Vec<&str>, Vec<&str>) = (known.split('.').collect(), host.split('.').collect());
    let fits = |(known, part): (&&str, &&str)| match known.split_once('*') {
        Some((before, after)) => {
            part.len() >= before.len() + after.len() && part.starts_with(before) && part.ends_with(after)
        }
        None => known == part,
    };
    known.len() == host.len() && known.iter().zip(&host).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str, host: &str, repository: &str) -> Option<String> {
        let found = find_in(text, host, repository).unwrap_or_else(|wrong| panic!("{wrong}"));
        found.map(|credentials| format!("{}:{}", credentials.user, credentials.password))
    }

    #[test]
    fn the_most_precise_entry_is_taken() {
        let auth = |text: &str| STANDARD.encode(text);
        let text = serde_json::json!({ "auths": {
            "r.example": { "auth": auth("host:1") },
            "r.example/team": { "auth": auth("team:a:b") },
            "https://s.example:5000/v2/": { "username": "plain", "password": "2" },
            "*.cloud.example": { "auth": auth("cloud:3") },
            "https://index.docker.io/v1/": { "auth": auth("hub:4") },
            "empty.example": {},
        }})
        .to_string();
        for (host, repository, expected) in [
            ("r.example", "filter", Some("host:1")),
            ("r.example", "team/filter", Some("team:a:b")),
            ("r.example", "teammate", Some("host:1")),
            ("s.example:5000", "filter", Some("plain:2")),
            ("s.example", "filter", None),
            ("eu.cloud.example", "filter", Some("cloud:3")),
            ("a.eu.cloud.example", "filter", None),
            ("docker.io", "user/filter", Some("hub:4")),
            ("empty.example", "filter", None),
        ] {
            assert_eq!(
                user(&text, host, repository).as_deref(),
                expected,
                "{host}/{repository}"
            );
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name_and_without_secrets() {
        for (text, expected) in [
            (
                r#"{"auths":{"r.example":{"identitytoken":"secret"}}}"#,
                "`identitytoken`",
            ),
            (
                r#"{"auths":{"r.example":{"registrytoken":"secret"}}}"#,
                "`registrytoken`",
            ),
            (r#"{"auths":{"r.example":{"auth":"c2VjcmV0"}}}"#, "USER:PASSWORD"),
            (r#"{"credsStore":"desktop"}"#, "docker-credential-desktop"),
            (
                r#"{"credHelpers":{"r.example":"gcloud"}}"#,
                "docker-credential-gcloud",
            ),
            ("{\n\"auths\": \"secret\"}", "line 2"),
        ] {
            let wrong = find_in(text, "r.example", "a").unwrap_err();
            assert!(wrong.contains(expected) && !wrong.contains("secret"), "{wrong}");
        }
        assert_eq!(
            user(r#"{"credHelpers":{"other.example":"x"}}"#, "r.example", "a"),
            None
        );
    }
}
