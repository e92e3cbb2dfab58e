//! The input of a case beside its record: the message of a response, the details of a query.
//!
//! ```kdl
//! response "www.example" "A" source="cache" {
//!     given listener="127.0.0.1:53" {
//!         option 8 "000118" "c00002"
//!         record "www.example." 300 "A" "192.0.2.1"
//!     }
//!     pass
//! }
//! ```

use kdl::{KdlEntry, KdlNode, KdlValue};

use super::values::{query_name, query_type};
use crate::config::decode::{Decoder, Shape, Wrong, arguments, block, named_nodes, text, whole};
use crate::config::hex;
use crate::dns::CLASS_IN;
use crate::dns::build;
use crate::dns::data::parse_data;
use crate::dns::name::Name;
use crate::filter::Known;
use dnsweir_answer::identity::{Identity, Labels, Namespace, PodObject};

const GIVEN: Shape = Shape {
    example: r#"given { record "www.example." 300 "A" "192.0.2.1" }"#,
    arguments: 0..=0,
    properties: &["listener", "server-name", "identity"],
    children: &CHILDREN,
    repeated: &CHILDREN,
};

const CHILDREN: [&str; 8] = [
    "option",
    "record",
    "authority",
    "additional",
    "pod-label",
    "pod-annotation",
    "namespace-label",
    "namespace-annotation",
];

const LABEL: Shape = Shape::plain(
    2..=2,
    r#"namespace-annotation "example.com/allowed" "*.example.com""#,
);

const RECORD: Shape = Shape::plain(4..=4, r#"record "www.example." 300 "A" "192.0.2.1""#);

const OPTION: Shape = Shape::plain(1..=usize::MAX, r#"option 8 "000118" "c00002""#);

/// Offset of the answer section's record count in the header.
pub(super) const ANSWERS: usize = 6;

/// The sections of a message in order, as named in test cases, with the offset of each count in the header.
const SECTIONS: [(&str, usize); 3] = [("record", ANSWERS), ("authority", 8), ("additional", 10)];

/// The decoded input.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The response message, usually without records.
    pub message: Vec<u8>,
    /// Number of records in its answer section.
    pub answers: u16,
    /// The lowest TTL of all its records; 0: there are none.
    pub ttl: u32,
    /// The options of the query's OPT record.
    options: Vec<u8>,
    listener: String,
    server_name: String,
    /// The client's identity.
    identity: Identity,
    /// The node as written.
    pub(super) text: Option<String>,
}

impl Given {
    /// Decodes a case's `given`, if it has one, for a question in wire format. `file` is the text of the
    /// whole file.
    pub(super) fn decode(
        decoder: &mut Decoder,
        node: Option<&KdlNode>,
        question: &[u8],
        rcode: u16,
        file: &str,
    ) -> Given {
        let mut given = Given {
            message: build::empty(question, rcode),
            ..Given::default()
        };
        let Some(node) = node else { return given };
        decoder.check(node, &GIVEN);
        let span = node.span();
        let written = file.get(span.offset()..span.offset() + span.len());
        given.text = written.map(|text| text.trim().to_owned());
        given.listener = decoder.property(node, "listener", text).unwrap_or_default();
        given.server_name = decoder.property(node, "server-name", text).unwrap_or_default();
        given.identity = decode_identity(decoder, node);
        let mut ttls = Vec::new();
        for (section, count_at) in SECTIONS {
            for record in named_nodes(block(node), section) {
                ttls.extend(push_record(decoder, record, count_at, &mut given.message));
            }
        }
        for option in named_nodes(block(node), "option") {
            given.push_option(decoder, option);
        }
        given.answers = named_nodes(block(node), "record").count() as u16;
        given.ttl = ttls.into_iter().min().unwrap_or(0);
        given
    }

    fn push_option(&mut self, decoder: &mut Decoder, node: &KdlNode) {
        decoder.check(node, &OPTION);
        let mut given = arguments(node);
        let code = given
            .next()
            .and_then(|entry| decoder.value("code", entry, whole(0..=u16::MAX)));
        let data: Option<Vec<Vec<u8>>> = given
            .map(|entry: &KdlEntry| decoder.value("data", entry, octets))
            .collect();
        if let (Some(code), Some(data)) = (code, data) {
            let data = data.concat();
            self.options.extend(code.to_be_bytes());
            self.options.extend((data.len() as u16).to_be_bytes());
            self.options.extend(data);
        }
    }

    /// The known details of the query.
    pub(super) fn known(&self) -> Known<'_> {
        Known {
            options: &self.options,
            listener: &self.listener,
            server_name: &self.server_name,
            identity: &self.identity,
        }
    }
}

/// Decodes `identity="shop/web"` or `identity="host"`, and the labels and annotations in the block.
fn decode_identity(decoder: &mut Decoder, node: &KdlNode) -> Identity {
    let mut labels = |name: &str| {
        let mut labels = Labels::new();
        for label in named_nodes(block(node), name) {
            decoder.check(label, &LABEL);
            let texts: Vec<_> = arguments(label)
                .filter_map(|entry| decoder.value(name, entry, text))
                .collect();
            if let [name, value] = &texts[..] {
                labels.insert(name.clone(), value.clone());
            }
        }
        labels
    };
    let (of_pod, pod_annotations) = (labels("pod-label"), labels("pod-annotation"));
    let namespace = Namespace {
        labels: labels("namespace-label"),
        annotations: labels("namespace-annotation"),
    };
    let Some(identity) = decoder.property(node, "identity", identity) else {
        return Identity::Unknown;
    };
    match identity.split_once('/') {
        None => Identity::Host,
        Some((name, pod)) => {
            let object = PodObject {
                namespace: name.into(),
                name: pod.into(),
                service_account: "default".into(),
                labels: of_pod,
                annotations: pod_annotations,
                ..PodObject::default()
            };
            Identity::of(object, namespace)
        }
    }
}

fn identity(value: &KdlValue) -> Result<String, Wrong> {
    let identity = text(value)?;
    match identity == "host" || identity.contains('/') {
        true => Ok(identity),
        false => Err(Wrong::new(
            "is not an identity",
            "write \"NAMESPACE/POD\", or \"host\"; leave it out for an unknown client",
        )),
    }
}

/// Appends a record to a message and counts it at `count_at`. Returns its TTL, or none if it has a mistake.
pub(super) fn push_record(
    decoder: &mut Decoder,
    node: &KdlNode,
    count_at: usize,
    message: &mut Vec<u8>,
) -> Option<u32> {
    decoder.check(node, &RECORD);
    let given: Vec<_> = arguments(node).collect();
    let [owner, ttl, rtype, data] = given[..] else {
        return None;
    };
    let owner = decoder.value("owner", owner, query_name);
    let ttl = decoder.value("TTL", ttl, whole(0..=i32::MAX as u32));
    let rtype = decoder.value("type", rtype, query_type)?;
    let data = decoder.value("data", data, |value| record_data(value, rtype));
    let (owner, ttl) = (owner?, ttl?);
    build::push_record(message, count_at, owner.as_bytes(), rtype, CLASS_IN, ttl, &data?);
    Some(ttl)
}

fn record_data(value: &KdlValue, rtype: u16) -> Result<Vec<u8>, Wrong> {
    parse_data(rtype, text(value)?.as_bytes(), Name::ROOT.as_bytes()).map_err(|_| {
        Wrong::new(
            "is not data of this type",
            "write it as in a zone file, with names that end in a dot",
        )
    })
}

/// Decodes hexadecimal digits, two per byte.
fn octets(value: &KdlValue) -> Result<Vec<u8>, Wrong> {
    let octets = hex::octets(&text(value)?).filter(|octets| octets.len() <= usize::from(u16::MAX));
    octets.ok_or_else(|| {
        Wrong::new(
            "is not a string of bytes",
            "write two hexadecimal digits for each, such as \"000118\"",
        )
    })
}
