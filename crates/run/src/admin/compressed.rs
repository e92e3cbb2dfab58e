//! Compresses replies with gzip, for clients that accept it: a page of metrics shrinks to a fifth.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderValue, VARY};

use crate::exposition::media_range;

/// Bodies below this size in bytes fit into a packet, and are sent as they are.
const WORTHWHILE: usize = 1400;

/// Returns whether a request accepts gzip (RFC 9110 section 12.5.3), or `x-gzip`, its old name (section
/// 8.4.1.3).
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    let (mut gzip, mut any) = (None, None);
    for coding in codings {
        let (name, _, rank) = media_range(coding);
        match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => gzip = gzip.max(Some(rank)),
            "*" => any = Some(rank),
            _ => {}
        }
    }
    gzip.or(any).is_some_and(|rank| rank > 0)
}

/// Compresses a reply if that is worthwhile and `takes_gzip`.
pub(super) async fn compressed(reply: Response<Full<Bytes>>, takes_gzip: bool) -> Response<Full<Bytes>> {
    let (mut head, body) = reply.into_parts();
    let Ok(body) = body.collect().await;
    let body = body.to_bytes();
    if body.len() < WORTHWHILE {
        return Response::from_parts(head, Full::new(body));
    }
    head.headers
        .append(VARY, HeaderValue::from_static("Accept-Encoding"));
    let Some(smaller) = takes_gzip.then(|| gzip(&body)).flatten() else {
        return Response::from_parts(head, Full::new(body));
    };
    head.headers
        .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    Response::from_parts(head, Full::new(smaller))
}

/// At the fastest level: the thread has more to do.
fn gzip(octets: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(octets).ok()?;
    Some(encoder.finish().ok()?.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::admin::{StatusCode, text};

    #[test]
    fn codings_are_taken_as_they_are_ranked() {
        for (values, expected) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["GZip"], true),
            (&["deflate, x-gzip;q=0.5"], true),
            (&["deflate", "gzip"], true),
            (&["*"], true),
            (&["*;q=0.1, identity"], true),
            (&["gzip;q=0"], false),
            (&["gzip;q=0.000, *"], false),
            (&["gzip; q=0.001"], true),
            (&["gzip;q=yes"], false),
            (&["*;q=0"], false),
            (&["br, zstd"], false),
            (&[""], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(ACCEPT_ENCODING, value.parse().unwrap());
            }
            assert_eq!(takes_gzip(&headers), expected, "{values:?}");
        }
    }

    #[tokio::test]
    async fn what_is_compressed_says_so_and_is_the_same() {
        let long = "dnsweir_requests_total 1\n".repeat(1000);
        for (body, takes, expected) in [
            (long.as_str(), true, true),
            (&long, false, false),
            ("ok\n", true, false),
        ] {
            let reply = compressed(text(StatusCode::OK, body.to_owned()), takes).await;
            let (head, octets) = reply.into_parts();
            let Ok(octets) = octets.collect().await;
            let octets = octets.to_bytes();
            assert_eq!(head.headers.get(CONTENT_ENCODING).is_some(), expected);
            // A cache in between must keep the two encodings apart.
            assert_eq!(head.headers.get(VARY).is_some(), body.len() > WORTHWHILE);
            let read = match expected {
                true => {
                    assert!(
                        octets.len() * 10 < body.len(),
                        "{} of {}",
                        octets.len(),
                        body.len()
                    );
                    let mut read = String::new();
                    flate2::read::GzDecoder::new(&octets[..])
                        .read_to_string(&mut read)
                        .unwrap();
                    read
                }
                false => String::from_utf8(octets.to_vec()).unwrap(),
            };
            assert_eq!(read, body);
        }
    }
}
