use super::*;
use crate::web::{WebServer, page};

/// Begins to ask a server about the repository `team/a`.
pub async fn begin(server: &WebServer, actions: &str) -> Result<Client, Error> {
    let host = Host {
        name: server.address.to_string(),
        plain: true,
        credentials: Some(Credentials {
            user: "user".into(),
            password: "secret".into(),
        }),
    };
    let way = Way {
        ca: None,
        proxy: None,
    };
    let written = Some(vec!["127.0.0.1".to_owned()]);
    Client::begin(&host, &way, "team/a", actions, written).await
}

fn text<T: std::fmt::Debug>(refused: Result<T, Error>) -> String {
    refused.unwrap_err().to_string()
}

#[tokio::test]
async fn a_token_is_got_and_renewed() {
    let (registry, tokens) = (WebServer::plain(), WebServer::plain());
    let realm = format!("http://{}/token?a=b", tokens.address);
    let challenge = format!("www-authenticate: Bearer realm=\"{realm}\",service=\"s\"\r\n");
    registry.answer(
        move |request| match request.contains("authorization: bearer two\r\n") {
            true => page("200 OK", "", "manifest"),
            false => page("401 Unauthorized", &challenge, ""),
        },
    );
    tokens.answer(|_| page("200 OK", "", "{\"token\":\"\",\"access_token\":\"one\"}"));
    let mut client = begin(&registry, "pull,push").await.unwrap();
    tokens.answer(|_| page("200 OK", "", "{\"token\":\"two\",\"access_token\":\"other\"}"));
    assert_eq!(client.manifest("1").await.unwrap(), "manifest");
    let asked = tokens.requests();
    assert_eq!(asked.len(), 2);
    let query = "a=b&scope=repository%3ateam%2fa%3apull%2cpush&service=s";
    assert!(asked[0].starts_with(&format!("get /token?{query} ")), "{asked:?}");
    assert!(
        asked[0].contains("authorization: basic dxnlcjpzzwnyzxq=\r\n"),
        "{asked:?}"
    );
    let asked = registry.requests();
    assert!(asked[1].contains("authorization: bearer one\r\n"), "{asked:?}");
    for (answer, expected) in [
        (page("200 OK", "", "{}"), "its token server sent no token"),
        (
            page("200 OK", "", "{\"token\":\"a\\nb\"}"),
            "its token server sent no token",
        ),
        (page("401 Unauthorized", "", "wrong password"), "wrong password"),
        (page("500 Oh", "", ""), "500 Internal Server Error"),
    ] {
        tokens.answer(move |_| answer.clone());
        let problem = text(begin(&registry, "pull").await);
        assert!(problem.contains(expected), "{problem}");
        assert!(!problem.contains("secret"), "{problem}");
    }
}

#[tokio::test]
async fn a_password_is_for_the_registry_only() {
    let (registry, other) = (WebServer::plain(), WebServer::plain());
    let octets = "module";
    let digest = artifact::digest(octets.as_bytes());
    let elsewhere = format!("location: http://{}/blob?signed\r\n", other.address);
    registry.answer(
        move |request| match request.contains("authorization: basic dxnlcjpzzwnyzxq=") {
            true => page("307 Temporary Redirect", &elsewhere, ""),
            false => page("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", ""),
        },
    );
    other.answer(move |_| page("200 OK", "", octets));
    let mut client = begin(&registry, "pull").await.unwrap();
    assert_eq!(client.blob(&digest, octets.len()).await.unwrap(), octets);
    let asked = other.requests();
    assert!(asked[0].starts_with("get /blob?signed "), "{asked:?}");
    assert!(!asked[0].contains("authorization"), "{asked:?}");
    other.answer(move |_| page("403 Forbidden", "", "expired"));
    let problem = text(client.blob(&digest, octets.len()).await);
    assert!(problem.ends_with("403 Forbidden: expired"), "{problem}");
    assert!(!problem.contains("signed"), "{problem}");
}

/// Some registries let anybody see what is public, and say only at a private repository that they want to know who asks.
#[tokio::test]
async fn a_registry_may_ask_for_credentials_late() {
    let registry = WebServer::plain();
    registry.answer(|request| {
        let is_known = request.contains("authorization: basic dxnlcjpzzwnyzxq=\r\n");
        match is_known || request.starts_with("get /v2/ ") {
            true => page("200 OK", "", "manifest"),
            false => page("401 Unauthorized", "www-authenticate: Basic realm=\"r\"\r\n", ""),
        }
    });
    let mut client = begin(&registry, "pull").await.unwrap();
    assert_eq!(client.manifest("1").await.unwrap(), "manifest");
    assert_eq!(registry.requests().len(), 3);
}

/// Neither the registry nor anyone on the way decides that a password is sent in clear text.
#[tokio::test]
async fn a_token_server_without_tls_gets_no_password() {
    let (registry, tokens) = (WebServer::plain(), WebServer::plain());
    let mut client = begin(&registry, "pull").await.unwrap();
    client.repository = "https://registry.example/v2/team/a/".parse().unwrap();
    let realm = format!("http://{}/token", tokens.address);
    let refused = text(client.token(&realm, None).await);
    assert_eq!(
        refused,
        format!("its token server {realm:?} is not asked over https")
    );
    assert!(tokens.requests().is_empty());
}

/// A server that the registry redirects to does not decide either.
#[tokio::test]
async fn another_servers_challenge_is_ignored() {
    let (registry, other, tokens) = (WebServer::plain(), WebServer::plain(), WebServer::plain());
    let challenge = format!(
        "www-authenticate: Bearer realm=\"http://{}/token\"\r\n",
        tokens.address
    );
    other.answer(move |_| page("401 Unauthorized", &challenge, ""));
    let location = format!("location: http://{}/\r\n", other.address);
    registry.answer(move |_| page("307 Temporary Redirect", &location, ""));
    let mut client = begin(&registry, "pull").await.unwrap();
    assert!(client.manifest("1").await.is_err());
    assert!(tokens.requests().is_empty());
}

#[tokio::test]
async fn a_digest_is_in_a_header_or_computed() {
    let registry = WebServer::plain();
    let mut client = begin(&registry, "pull").await.unwrap();
    registry.answer(
        |request| match request.starts_with("head /v2/team/a/manifests/1 ") {
            true => page("200 OK", "docker-content-digest: sha256:00\r\n", ""),
            false => page("404 Not Found", "", ""),
        },
    );
    assert_eq!(client.digest("1").await.unwrap(), "sha256:00");
    registry.answer(
        |request| match request.starts_with("get /v2/team/a/manifests/1 ") {
            true => page("200 OK", "", "manifest"),
            false => page("200 OK", "", ""),
        },
    );
    assert_eq!(client.digest("1").await.unwrap(), artifact::digest(b"manifest"));
    let asked = registry.requests().pop().unwrap();
    assert!(asked.contains(&format!("accept: {MANIFEST}\r\n")), "{asked}");
}

#[tokio::test]
async fn what_is_too_large_or_another_is_refused() {
    let registry = WebServer::plain();
    let mut client = begin(&registry, "pull").await.unwrap();
    let digest = artifact::digest(b"module");
    registry.answer(|_| page("200 OK", "", &"a".repeat(LARGEST_MANIFEST + 1)));
    assert_eq!(
        text(client.manifest("1").await),
        "its manifest has more than 1MiB"
    );
    registry.answer(|_| b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nmodule and more".to_vec());
    assert_eq!(
        text(client.blob(&digest, 6).await),
        format!("{digest} has more than 6B")
    );
    registry.answer(|_| page("200 OK", "", "mobile"));
    let expected = format!(
        "it sent something with the digest {} for {digest}",
        artifact::digest(b"mobile")
    );
    assert_eq!(text(client.blob(&digest, 6).await), expected);
    assert_eq!(text(client.manifest(&digest).await), expected);
    let problem = text(client.blob("sha256:../../x", 6).await);
    assert!(problem.contains("is not a SHA-256 digest"), "{problem}");
}

#[tokio::test]
async fn refusals_say_what_the_registry_said() {
    let registry = WebServer::plain();
    let mut client = begin(&registry, "pull").await.unwrap();
    let url = format!("http://{}/v2/team/a/manifests/1", registry.address);
    let errors = "{\"errors\":[{\"code\":\"MANIFEST_UNKNOWN\",\"message\":\"manifest unknown\",\"detail\":null},{\"code\":\"OTHER\"}]}";
    for (status, body, expected, is_missing) in [
        (
            "400 Bad Request",
            errors,
            ": 400 Bad Request: manifest unknown, OTHER",
            true,
        ),
        ("404 Not Found", "", ": 404 Not Found", true),
        ("403 Forbidden", "<p>\nno", ": 403 Forbidden: <p>\\nno", false),
    ] {
        registry.answer(move |_| page(status, "", body));
        let refused = client.manifest("1").await.unwrap_err();
        assert_eq!(refused.to_string(), format!("{url}{expected}"));
        assert_eq!(refused.is_missing(), is_missing, "{status}");
    }
    registry.answer(|_| page("401 Unauthorized", "", ""));
    assert_eq!(text(client.manifest("1").await), format!("Not authorized: {url}"));
}

#[tokio::test]
async fn uploads_go_where_the_registry_says() {
    let registry = WebServer::plain();
    let mut client = begin(&registry, "pull,push").await.unwrap();
    registry.answer(|request| match request.split(' ').next() {
        Some("post") => page("202 Accepted", "location: /upload/1?state=x\r\n", ""),
        Some("put") => page("201 Created", "", ""),
        _ => page("404 Not Found", "", ""),
    });
    client.upload("module".into()).await.unwrap();
    client.store("1", "manifest".into()).await.unwrap();
    let asked = registry.requests();
    let [.., head, post, put, store] = &asked[..] else {
        panic!("{asked:?}")
    };
    let digest = artifact::digest(b"module");
    assert!(
        head.starts_with(&format!("head /v2/team/a/blobs/{digest} ")),
        "{head}"
    );
    assert!(post.starts_with("post /v2/team/a/blobs/uploads/ "), "{post}");
    assert!(post.contains("content-length: 0\r\n"), "{post}");
    let digest = digest.replace(':', "%3a");
    assert!(
        put.starts_with(&format!("put /upload/1?state=x&digest={digest} ")),
        "{put}"
    );
    assert!(put.ends_with("\r\n\r\nmodule"), "{put}");
    assert!(store.starts_with("put /v2/team/a/manifests/1 "), "{store}");
    assert!(
        store.contains(&format!("content-type: {MANIFEST}\r\n")),
        "{store}"
    );
    assert!(store.ends_with("\r\n\r\nmanifest"), "{store}");
    // What is there is not sent again.
    registry.answer(|_| page("200 OK", "", ""));
    client.upload("module".into()).await.unwrap();
    assert_eq!(registry.requests().len(), asked.len() + 1);
    registry.answer(|request| match request.starts_with("post ") {
        true => page("202 Accepted", "", ""),
        false => page("404 Not Found", "", ""),
    });
    let problem = text(client.upload("module".into()).await);
    assert_eq!(problem, "it names no place to upload to");
}

#[test]
fn the_next_page_is_found() {
    let at_url = Url::parse("http://registry.example/v2/a/referrers/b?n=1").unwrap();
    for (link, expected) in [
        (
            "</v2/c?n=2>; rel=\"next\"",
            Some("http://registry.example/v2/c?n=2"),
        ),
        (
            "<?n=2>;rel=next",
            Some("http://registry.example/v2/a/referrers/b?n=2"),
        ),
        (
            "<http://a/>; rel=\"prev\", <http://b/>; title=\"x\"; REL=\"last next\"",
            Some("http://b/"),
        ),
        ("</v2/c>; rel=\"prev\"", None),
        ("</v2/c", None),
        ("", None),
    ] {
        let headers = HeaderMap::from_iter([(LINK, HeaderValue::from_str(link).unwrap())]);
        let found = next_page(&at_url, &headers).map(String::from);
        assert_eq!(found.as_deref(), expected, "{link}");
    }
}
