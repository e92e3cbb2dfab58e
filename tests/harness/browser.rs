//! A real browser, controlled through a pipe: Chromium's own protocol, JSON objects that each end with a zero
//! byte.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::tools::command;

/// A page in a browser, which ends with it.
pub struct Browser {
    process: Child,
    _profile: tempfile::TempDir,
    to: File,
    from: File,
    /// An incomplete object.
    read: Vec<u8>,
    calls: u64,
    session: Option<String>,
    /// What the page threw or logged as an error.
    pub complaints: Vec<String>,
}

impl Browser {
    /// Opens an empty page of this size, in a dark or light colour scheme.
    pub fn start(width: u32, height: u32, dark: bool) -> Browser {
        let profile = tempfile::tempdir().expect("a folder");
        let (theirs_in, to) = pipe();
        let (from, theirs_out) = pipe();
        let mut chromium = command("chromium");
        chromium
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        give(&mut chromium, [theirs_in.as_raw_fd(), theirs_out.as_raw_fd()]);
        let process = chromium.spawn().expect("chromium");
        let mut browser = Browser {
            process,
            _profile: profile,
            to: to.into(),
            from: from.into(),
            read: Vec::new(),
            calls: 0,
            session: None,
            complaints: Vec::new(),
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().expect("a session").to_owned());
        browser.call("Runtime.enable", json!({}));
        browser.call("Log.enable", json!({}));
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        browser.call("Emulation.setDeviceMetricsOverride", size);
        let likes = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": likes}]});
        browser.call("Emulation.setEmulatedMedia", media);
        browser
    }

    /// Opens a page, without waiting for it.
    pub fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({"url": address}));
    }

    /// Returns the value of a JavaScript expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        self.call("Runtime.evaluate", asked)["result"]["value"].take()
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut object = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            object["sessionId"] = session.as_str().into();
        }
        let mut octets = object.to_string().into_bytes();
        octets.push(0);
        self.to.write_all(&octets).expect("a browser that listens");
        loop {
            let mut said = self.next();
            if said["id"] == self.calls {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].take();
            }
            let problem = said["method"] == "Runtime.exceptionThrown"
                || said["method"] == "Log.entryAdded" && said["params"]["entry"]["level"] == "error";
            if problem {
                self.complaints.push(said.to_string());
            }
        }
    }

    fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.read.iter().position(|octet| *octet == 0) {
                let rest = self.read.split_off(end + 1);
                let object = std::mem::replace(&mut self.read, rest);
                return serde_json::from_slice(&object[..end]).expect("JSON");
            }
            let mut octets = [0; 1 << 16];
            let count = self.from.read(&mut octets).expect("a browser that speaks");
            assert!(count > 0, "the browser has ended");
            self.read.extend_from_slice(&octets[..count]);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Creates a pipe: the ends for reading and for writing.
fn pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (reader.into(), writer.into())
}

/// Gives the command these descriptors as 3 and 4, where Chromium expects them.
fn give(command: &mut Command, ends: [i32; 2]) {
    // SAFETY: fcntl and dup2 are system calls that take numbers, and may be called between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // Move them out of the way first: one may have the number that the other is to get.
            let away = ends.map(|end| libc::fcntl(end, libc::F_DUPFD_CLOEXEC, 10));
            match away
                .iter()
                .zip(3..)
                .all(|(end, number)| libc::dup2(*end, number) == number)
            {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        });
    }
}
