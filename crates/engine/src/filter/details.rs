//! Details of a query beside its record, for filters that request them.

use super::bindings::dnsweir::filter::types::Detail;
use crate::dns::edns;
use dnsweir_answer::identity::{Identity, Labels, Pod};

/// Kinds of the entries that follow a name.
const EDNS_OPTION: u16 = 1;
const LISTENER: u16 = 2;
const SERVER_NAME: u16 = 3;
const HOST: u16 = 4;
const POD: u16 = 5;
const POD_LABEL: u16 = 6;
const POD_ANNOTATION: u16 = 7;
const NAMESPACE_LABEL: u16 = 8;
const NAMESPACE_ANNOTATION: u16 = 9;

/// Maximum labels and annotations that a manifest may request, and bytes of the name of one, which Kubernetes
/// limits.
const LABELS: usize = 64;
const LABEL_NAME: usize = 317;

/// The details that a manifest requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    all_options: bool,
    options: Vec<u16>,
    listener: bool,
    server_name: bool,
    identity: bool,
    /// Labels and annotations, each with its kind.
    labels: Vec<(u16, String)>,
}

/// The known details of a query.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The options of its OPT record.
    pub options: &'a [u8],
    /// The listener that received it; empty: none.
    pub listener: &'a str,
    /// The TLS server name; empty: none.
    pub server_name: &'a str,
    /// The client's identity.
    pub identity: &'a Identity,
}

impl Details {
    /// # Errors
    ///
    /// Returns which limit is exceeded.
    pub(super) fn new(wanted: &[Detail]) -> Result<Details, String> {
        let mut details = Details::default();
        for detail in wanted {
            match detail {
                Detail::EdnsOption(code) => details.options.push(*code),
                Detail::EdnsOptions => details.all_options = true,
                Detail::Listener => details.listener = true,
                Detail::ServerName => details.server_name = true,
                Detail::Identity => details.identity = true,
                Detail::PodLabel(name) => details.label(POD_LABEL, name)?,
                Detail::PodAnnotation(name) => details.label(POD_ANNOTATION, name)?,
                Detail::NamespaceLabel(name) => details.label(NAMESPACE_LABEL, name)?,
                Detail::NamespaceAnnotation(name) => details.label(NAMESPACE_ANNOTATION, name)?,
            }
        }
        Ok(details)
    }

    fn label(&mut self, kind: u16, name: &str) -> Result<(), String> {
        self.identity = true;
        // A label requested twice would be sent twice, and the total length might overflow.
        if self
            .labels
            .iter()
            .any(|(known, of)| (*known, &**of) == (kind, name))
        {
            return Ok(());
        }
        if self.labels.len() == LABELS {
            return Err(format!("it asks for more than {LABELS} labels and annotations"));
        }
        if name.len() > LABEL_NAME {
            return Err(format!(
                "it asks for a label or annotation whose name has {} bytes; the maximum is {LABEL_NAME}",
                name.len()
            ));
        }
        self.labels.push((kind, name.to_owned()));
        Ok(())
    }

    /// Whether it requests labels or annotations.
    pub fn labels(&self) -> bool {
        !self.labels.is_empty()
    }

    /// Whether it requests the client's identity.
    pub fn identity(&self) -> bool {
        self.identity
    }

    /// Whether it requests any details.
    pub fn any(&self) -> bool {
        // Runs for every event that a filter receives: comparing with an empty value would take longer.
        self.listener || self.server_name || self.identity || self.options()
    }

    /// Whether requests must keep their EDNS options for it.
    pub fn options(&self) -> bool {
        self.all_options || !self.options.is_empty()
    }

    /// Appends the details that are requested and known.
    pub(super) fn gather(&self, known: Known<'_>, out: &mut Vec<u8>) {
        for (code, value) in edns::options(known.options) {
            if self.all_options || self.options.contains(&code) {
                let parts = [&code.to_be_bytes()[..], value];
                push(EDNS_OPTION, &parts, out);
            }
        }
        for (wanted, kind, text) in [
            (self.listener, LISTENER, known.listener),
            (self.server_name, SERVER_NAME, known.server_name),
        ] {
            if wanted && !text.is_empty() {
                push(kind, &[text.as_bytes()], out);
            }
        }
        match known.identity {
            Identity::Host if self.identity => push(HOST, &[], out),
            Identity::Pod(pod) if self.identity => self.gather_pod(pod, out),
            _ => {}
        }
    }

    /// At most 2^16 bytes together with all else: `identity/bounds.rs` limits the labels of an object.
    fn gather_pod(&self, pod: &Pod, out: &mut Vec<u8>) {
        let object = &pod.object;
        let names = [&object.namespace, &object.name, &object.service_account].map(|name| name.as_bytes());
        push(POD, &[names[0], b"\0", names[1], b"\0", names[2]], out);
        for (kind, name) in &self.labels {
            let labels: &Labels = match *kind {
                POD_LABEL => &object.labels,
                POD_ANNOTATION => &object.annotations,
                NAMESPACE_LABEL => &pod.namespace.labels,
                _ => &pod.namespace.annotations,
            };
            if let Some(value) = labels.get(name) {
                push(*kind, &[name.as_bytes(), b"\0", value.as_bytes()], out);
            }
        }
    }
}

fn push(kind: u16, parts: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.extend(kind.to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;
    use dnsweir_answer::identity::{Namespace, PodObject};

    #[test]
    fn only_what_is_wanted_is_gathered() {
        let known = Known {
            options: b"\0\x08\0\x02ab\0\x0a\0\0\0\x08\0\x01c\0\x09\xff",
            listener: "[::1]:53",
            server_name: "",
            identity: &Identity::Host,
        };
        let gathered = |wanted: &[Detail]| {
            let mut out = Vec::new();
            Details::new(wanted).unwrap().gather(known, &mut out);
            out
        };
        assert!(!Details::new(&[]).unwrap().any() && gathered(&[]).is_empty());
        let subnet = b"\0\x01\0\x04\0\x08ab\0\x01\0\x03\0\x08c";
        assert_eq!(gathered(&[Detail::EdnsOption(8), Detail::ServerName]), subnet);
        assert_eq!(
            gathered(&[Detail::EdnsOption(9)]),
            b"",
            "what overruns is the end"
        );
        let all = gathered(&[Detail::EdnsOptions]);
        assert_eq!(all, b"\0\x01\0\x04\0\x08ab\0\x01\0\x02\0\x0a\0\x01\0\x03\0\x08c");
        assert_eq!(gathered(&[Detail::Listener]), b"\0\x02\0\x08[::1]:53");
        assert_eq!(gathered(&[Detail::Identity]), b"\0\x04\0\0");
    }

    #[test]
    fn pods_are_told_by_what_was_asked() {
        let labels = |name: &str, value: &str| Labels::from([(name.into(), value.into())]);
        let object = PodObject {
            namespace: "shop".into(),
            name: "web".into(),
            service_account: "s".into(),
            labels: labels("app", "a"),
            ..PodObject::default()
        };
        let namespace = Namespace {
            annotations: labels("team", "t"),
            ..Namespace::default()
        };
        let identity = Identity::of(object, namespace);
        let gathered = |wanted: &[Detail]| {
            let mut out = Vec::new();
            let known = Known {
                options: b"",
                listener: "",
                server_name: "",
                identity: &identity,
            };
            Details::new(wanted).unwrap().gather(known, &mut out);
            out
        };
        let pod = b"\0\x05\0\x0ashop\0web\0s";
        assert_eq!(gathered(&[Detail::Listener]), b"");
        assert_eq!(gathered(&[Detail::Identity]), pod);
        let team = || Detail::NamespaceAnnotation("team".into());
        let wanted = [
            Detail::PodLabel("app".into()),
            Detail::PodAnnotation("app".into()),
            Detail::NamespaceLabel("team".into()),
            team(),
            team(),
        ];
        let all = [&pod[..], b"\0\x06\0\x05app\0a", b"\0\x09\0\x06team\0t"].concat();
        assert_eq!(gathered(&wanted), all);
    }

    #[test]
    fn labels_are_bounded() {
        let label = |n: usize| Detail::PodLabel(format!("n{n}"));
        let wanted = |count: usize| Details::new(&(0..count).map(label).collect::<Vec<_>>());
        assert!(wanted(LABELS).is_ok() && wanted(LABELS + 1).is_err());
        let named = |octets: usize| Details::new(&[Detail::NamespaceLabel("x".repeat(octets))]);
        assert!(named(LABEL_NAME).is_ok() && named(LABEL_NAME + 1).is_err());
    }
}
