//! Kubeconfigs and credentials, against a server on loopback.

use std::convert::Infallible;
use std::fs;
use std::future::pending;
use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dnsweir_config::tls::self_signed;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::client::{Client, Error};
use super::connection::keep_connected;
use super::credentials::Lease;
use super::followed::Followed;
use super::reflector::{Change, Collection, Reading, Reflector};
use super::resources;
use crate::config::Kubeconfig;

mod certificates;

const PATIENCE: Duration = Duration::from_secs(20);

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";

/// An answer without a body.
fn empty(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
}

/// A folder with a kubeconfig, and a server that answers as written.
struct Setting {
    folder: tempfile::TempDir,
    server: String,
    asked: mpsc::Receiver<String>,
}

impl Setting {
    fn new(answers: &[String]) -> Setting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let (tell, asked) = mpsc::channel();
        let answers = answers.to_vec();
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            while !answers.as_slice().is_empty() {
                let (mut stream, _) = listener.accept().unwrap();
                while let Some(request) = request(&mut stream) {
                    let Some(answer) = answers.next() else { return };
                    let _ = tell.send(request);
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        Setting {
            folder: tempfile::tempdir().unwrap(),
            server,
            asked,
        }
    }

    /// Writes the kubeconfig, with more words for its cluster and for its user.
    fn write(&self, cluster: &str, user: &str) -> Kubeconfig {
        let server = &self.server;
        let text = format!(
            "# As kubectl writes it.\napiVersion: v1\nkind: Config\npreferences: {{}}\ncurrent-context: here\n\
             clusters:\n- name: lab\n  cluster:\n    server: {server}/below/\n{cluster}\
             users:\n- name: me\n  user:\n{user}    ignored: x\n\
             contexts:\n- name: here\n  context: {{cluster: lab, user: me, namespace: shop}}\n\
             - name: lost\n  context: {{cluster: elsewhere, user: me}}\n"
        );
        fs::write(self.path("kubeconfig"), text).unwrap();
        self.named(None)
    }

    fn named(&self, context: Option<&str>) -> Kubeconfig {
        Kubeconfig {
            path: self.path("kubeconfig"),
            context: context.map(str::to_owned),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A program beside the kubeconfig that prints this.
    fn program(&self, name: &str, script: &str) {
        fs::write(self.path(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn refusal(&self, kubeconfig: &Kubeconfig) -> String {
        run(Client::connect(Some(kubeconfig))).err().expect("no client")
    }
}

/// The next request on a connection, in lower case; `None` once the client has closed it.
fn request(stream: &mut impl Read) -> Option<String> {
    let (mut request, mut octet) = (Vec::new(), [0]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut octet) {
            Ok(1..) => request.extend(octet),
            Ok(0) | Err(_) => return None,
        }
    }
    Some(String::from_utf8(request).unwrap().to_lowercase())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { timeout(PATIENCE, future).await.unwrap() })
}

/// Asks several times, and returns what was asked.
fn ask(setting: &Setting, kubeconfig: &Kubeconfig, times: usize) -> Vec<String> {
    run(async {
        let client = Client::connect(Some(kubeconfig)).await.unwrap();
        let mut session = client.session();
        for _ in 0..times {
            let _ = session.get::<Value>("/api/v1/pods?limit=1").await;
        }
    });
    (0..times).map(|_| setting.asked.recv().unwrap()).collect()
}

#[test]
fn requests_go_below_the_servers_path_with_the_users_credentials() {
    let basic = STANDARD.encode("jane:pass").to_lowercase();
    for (user, expected) in [
        ("    token: Secret\n".to_owned(), Some("bearer secret")),
        (
            "    username: jane\n    password: pass\n".to_owned(),
            Some(&*format!("basic {basic}")),
        ),
        (String::new(), None),
    ] {
        let setting = Setting::new(&[ANSWER.to_owned()]);
        let kubeconfig = setting.write("", &user);
        let [request] = &ask(&setting, &kubeconfig, 1)[..] else {
            panic!()
        };
        assert!(
            request.starts_with("get /below/api/v1/pods?limit=1 http/1.1"),
            "{request}"
        );
        let sent = request
            .lines()
            .find_map(|line| line.strip_prefix("authorization: "));
        assert_eq!(sent, expected, "{user}");
    }
}

#[test]
fn the_contexts_namespace_is_known() {
    let setting = Setting::new(&[]);
    let kubeconfig = setting.write("", "    token: a\n");
    let client = run(Client::connect(Some(&kubeconfig))).ok().unwrap();
    assert_eq!(client.namespace(), "shop");
}

/// A refused token is not kept, wherever it is from.
#[test]
fn tokens_are_renewed_once_they_are_refused() {
    let answers = [ANSWER.to_owned(), empty("401 Unauthorized"), ANSWER.to_owned()];
    let by_file = Setting::new(&answers);
    fs::write(by_file.path("token"), "first\n").unwrap();
    let by_program = Setting::new(&answers);
    let print = |token: &str| format!("echo '{{\"status\": {{\"token\": \"{token}\"}}}}'");
    by_program.program("login", &print("first"));
    for (setting, user) in [
        (&by_file, "    tokenFile: token\n"),
        (
            &by_program,
            "    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login}\n",
        ),
    ] {
        let kubeconfig = setting.write("", user);
        let sent = run(async {
            let client = Client::connect(Some(&kubeconfig)).await.unwrap();
            let mut session = client.session();
            assert!(session.get::<Value>("/").await.is_ok());
            fs::write(setting.path("token"), "second\n").unwrap();
            setting.program("login", &print("second"));
            let refused = session.get::<Value>("/").await;
            assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
            assert!(session.get::<Value>("/").await.is_ok());
            (0..3).map(|_| setting.asked.recv().unwrap()).collect::<Vec<_>>()
        });
        for (request, token) in sent.iter().zip(["first", "first", "second"]) {
            assert!(
                request.contains(&format!("authorization: bearer {token}\r\n")),
                "{request}"
            );
        }
    }
}

/// A program learns what it is asked for, and of the cluster if it wants to; an expired token is replaced.
#[test]
fn programs_print_credentials() {
    let setting = Setting::new(&[ANSWER.to_owned(), ANSWER.to_owned()]);
    let script = "echo \"$KUBERNETES_EXEC_INFO\" > asked; mv asked \"$1\"; read line && exit 1\n\
        echo '{\"status\": {\"token\": \"'$WHO'\", \"expirationTimestamp\": \"2020-01-01T00:00:00Z\"}}'; echo >> \"$1.runs\"";
    setting.program("login", script);
    let asked = setting.path("asked-for");
    let user = format!(
        "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: ./login\n      args: [{asked:?}]\n\
         \x20     env: [{{name: WHO, value: jane}}]\n      provideClusterInfo: true\n"
    );
    let kubeconfig = setting.write("", &user);
    for request in ask(&setting, &kubeconfig, 2) {
        assert!(request.contains("authorization: bearer jane\r\n"), "{request}");
    }
    let info: Value = serde_json::from_str(&fs::read_to_string(&asked).unwrap()).unwrap();
    assert_eq!(info["apiVersion"], "client.authentication.k8s.io/v1");
    assert_eq!(info["spec"]["interactive"], false);
    assert_eq!(
        info["spec"]["cluster"]["server"],
        format!("{}/below/", setting.server)
    );
    // Once to connect, and for each request, since what it prints has expired.
    assert_eq!(
        fs::read_to_string(setting.path("asked-for.runs")).unwrap().len(),
        3
    );
}

/// Seconds since 1970.
fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn a_certificate_serves_until_it_is_refused_or_about_to_expire() {
    let after = |seconds| Some(SystemTime::now() + Duration::from_secs(seconds));
    for (printed, not_after, is_over) in [
        (None, None, false),
        (after(3600), None, false),
        (after(3600), Some(now() + 3600), false),
        (after(3600), Some(now() - 1), true),
        (after(3600), Some(i64::MIN), false),
        (after(3600), Some(i64::MAX), false),
        (after(10), Some(now() + 3600), true),
        (Some(UNIX_EPOCH), None, true),
    ] {
        let lease = Lease::new(printed, not_after);
        assert_eq!(lease.is_over(), is_over, "{printed:?} {not_after:?}");
        lease.refuse();
        assert!(lease.is_over());
    }
}

/// Versions of one cluster mean nothing to another. Other credentials do not make it another one.
#[test]
fn another_cluster_is_told_from_other_credentials() {
    let setting = Setting::new(&[]);
    let kubeconfig = setting.write("", "    token: a\n");
    let (authority, _) = self_signed(&["ca.example".into()], now(), Duration::from_secs(3600)).unwrap();
    let authority = STANDARD.encode(authority);
    let authority = format!("    certificate-authority-data: {authority}\n    server");
    let mut changes = [
        ("token: a", "token: b".to_owned()),
        ("127.0.0.1", "127.0.0.2".to_owned()),
        ("    server", "    tls-server-name: other\n    server".to_owned()),
        ("    server", authority),
    ]
    .into_iter();
    let (mut told, failure) = (Vec::new(), Notify::new());
    run(keep_connected(
        Some(&kubeconfig),
        &failure,
        |problem| panic!("{problem}"),
        async |_, is_other| {
            told.push(is_other);
            if let Some((from, to)) = changes.next() {
                let text = fs::read_to_string(&kubeconfig.path).unwrap();
                fs::write(&kubeconfig.path, text.replacen(from, &to, 1)).unwrap();
                failure.notify_one();
                pending::<()>().await;
            }
        },
    ));
    assert_eq!(told, [false, false, true, true, true]);
}

/// A list of the namespace `shop` at this version.
fn list(version: u32) -> String {
    let version = version.to_string();
    let list = json!({"metadata": {"resourceVersion": version}, "items": [{"metadata": {"name": "shop"}}]});
    let text = list.to_string();
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())
}

/// Follows the namespace `shop` until it has been listed twice. Returns what was asked until then.
fn listed_twice(answers: &[String]) -> Vec<String> {
    listed_slowly(answers, Duration::ZERO).0
}

/// The same with lists that take some time. Returns how often something failed before the second, too.
fn listed_slowly(answers: &[String], takes: Duration) -> (Vec<String>, u64) {
    let setting = Setting::new(answers);
    let kubeconfig = setting.write("", "");
    let (followed, failure, mut version) = (Followed::new("namespaces"), Notify::new(), None);
    let (news, mut heard) = tokio::sync::mpsc::channel::<Change<()>>(16);
    let failures = run(async {
        let client = Client::connect(Some(&kubeconfig)).await.unwrap();
        let reflector = Reflector {
            collection: Collection::new(&client, resources::NAMESPACES),
            labels: None,
            fields: Some("metadata.name=shop"),
            followed: &followed,
            failure: &failure,
            news,
            read: |_: resources::Namespace| {
                thread::sleep(takes);
                Ok::<_, Infallible>(Reading::Present(()))
            },
            tell: |change| change,
        };
        let lists = async {
            let (mut lists, mut failures) = (0, 0);
            while lists < 2 {
                match heard.recv().await.unwrap() {
                    Change::ListBegins => failures = followed.failures.load(Ordering::Relaxed),
                    Change::ListEnds => lists += 1,
                    Change::Object(..) | Change::Gone(_) => {}
                }
            }
            failures
        };
        tokio::select! {
            () = reflector.run(&mut version) => panic!("it ended"),
            failures = lists => failures,
        }
    });
    let first = setting.asked.iter().take(answers.len());
    let asked = first.map(|request| request.split(' ').nth(1).unwrap().to_owned());
    (asked.collect(), failures)
}

/// However long the list before it took.
#[test]
fn a_watch_that_ends_at_once_has_failed() {
    let answers = [list(100), empty("200 OK"), list(99), list(99)];
    for takes in [0, 600].map(Duration::from_millis) {
        // The watch, and that the API server went back.
        assert_eq!(listed_slowly(&answers, takes).1, 2, "{takes:?}");
    }
}

/// An API server that was restored from a backup would say nothing to a watch that begins in its future.
#[test]
fn before_a_failed_watch_is_resumed_the_version_is_checked() {
    let path = "/below/api/v1/namespaces?";
    let selected = "fieldselector=metadata.name%3dshop";
    let [all, any, one] = [
        format!("{path}limit=500&{selected}"),
        format!("{path}limit=1"),
        format!("{path}limit=1&{selected}"),
    ];
    let watch = |version: u32| {
        let words = "watch=true&allowwatchbookmarks=true&timeoutseconds=290";
        format!("{path}{words}&resourceversion={version}&{selected}")
    };
    let failing = || empty("500 Failing");
    assert_eq!(
        listed_twice(&[list(100), failing(), list(100), failing(), list(99), list(99)]),
        [&*all, &watch(100), &any, &watch(100), &any, &all]
    );
    // As a kubelet, who may list only its own pods.
    let forbidden = || empty("403 Forbidden");
    assert_eq!(
        listed_twice(&[list(100), failing(), forbidden(), list(99), list(99)]),
        [&*all, &watch(100), &any, &one, &all]
    );
}

#[test]
fn mistakes_name_the_file_and_the_word() {
    let setting = Setting::new(&[]);
    setting.program("fails", "echo 'log in first' >&2; exit 3");
    setting.program("prints", "echo hello");
    let exec = |command: &str| format!("    exec: {{apiVersion: v1, command: {command}}}\n");
    for (cluster, user, expected) in [
        (
            "    proxy-url: http://192.0.2.1\n",
            String::new(),
            "proxy-url is not supported",
        ),
        (
            "    certificate-authority: none.pem\n",
            String::new(),
            "none.pem: No such file",
        ),
        (
            "    certificate-authority-data: '*'\n",
            String::new(),
            "certificate-authority-data is not base 64",
        ),
        ("", "    as: root\n".into(), "`as` is not supported"),
        ("", "    auth-provider: {name: gcp}\n".into(), "use exec"),
        ("", "    client-key-data: aGk=\n".into(), "belong together"),
        ("", exec("./fails"), "./fails: exit status: 3: log in first"),
        ("", exec("./prints"), "./prints: did not print an ExecCredential"),
        ("", exec("./absent"), "./absent: No such file"),
        ("", exec("./prints, interactiveMode: Always"), "needs a terminal"),
        ("", "    token: \"a\\nb\"\n".into(), "no header may have"),
        (
            "",
            "    token: [x]\n".into(),
            "is not a kubeconfig: users[0].user.token",
        ),
    ] {
        let kubeconfig = setting.write(cluster, &user);
        let told = setting.refusal(&kubeconfig);
        assert!(told.contains(expected) && told.contains("kubeconfig: "), "{told}");
    }
    setting.write("", "");
    for (context, expected) in [
        ("other", "it has no context \"other\""),
        ("lost", "it has no cluster \"elsewhere\""),
    ] {
        let told = setting.refusal(&setting.named(Some(context)));
        assert!(told.contains(expected), "{told}");
    }
    fs::write(setting.path("kubeconfig"), "{}").unwrap();
    let told = setting.refusal(&setting.named(None));
    assert!(told.contains("no current-context"), "{told}");
}

/// What is not in the API server's form is told with its status; what is, in its words.
#[test]
fn refusals_are_quoted() {
    let status = r#"{"kind":"Status","code":403,"reason":"Forbidden","message":"pods is forbidden"}"#;
    for (body, expected) in [
        (status, "403 Forbidden: pods is forbidden"),
        ("<html>\u{1b}[1m</html>", "403 Forbidden: <html>\\u{1b}[1m</html>"),
    ] {
        let length = body.len();
        let setting = Setting::new(&[format!(
            "HTTP/1.1 403 No\r\ncontent-length: {length}\r\n\r\n{body}"
        )]);
        let kubeconfig = setting.write("", "    token: a\n");
        let refused = run(async {
            let client = Client::connect(Some(&kubeconfig)).await.unwrap();
            client.session().get::<Value>("/").await.unwrap_err()
        });
        assert_eq!(refused.to_string(), expected);
    }
}
