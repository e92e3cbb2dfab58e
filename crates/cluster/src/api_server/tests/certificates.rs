//! Certificates that programs print, as a server receives them.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme, StreamOwned,
};

use super::*;
use dnsweir_config::tls;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Requires a certificate of clients, and accepts each.
#[derive(Debug)]
struct Any(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for Any {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// A server over TLS that answers one request of each connection as written. Sends the certificate of each
/// client to the receiver.
fn server(answers: Vec<String>) -> (String, mpsc::Receiver<CertificateDer<'static>>) {
    let (certificate, key) = tls::self_signed(&["api.example".into()], now(), YEAR).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = Arc::new(Any(provider.signature_verification_algorithms));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            tls::certificates(certificate.as_bytes()).unwrap(),
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        );
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("https://{}", listener.local_addr().unwrap());
    let (tell, received) = mpsc::channel();
    thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = StreamOwned::new(connection, stream);
            request(&mut stream).unwrap();
            let certificate = stream.conn.peer_certificates().unwrap()[0].clone();
            let _ = tell.send(certificate);
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (server, received)
}

/// A certificate from a program is replaced once it is refused, or after a failure when it is about to expire.
#[test]
fn certificates_of_programs_are_renewed() {
    for (status, lasts, expires) in [
        ("401 Unauthorized", YEAR, Some("2100-01-01T00:00:00Z")),
        ("401 Unauthorized", YEAR, None),
        ("500 Failing", YEAR, Some("2020-01-01T00:00:00Z")),
        ("500 Failing", Duration::from_secs(10), None),
    ] {
        let (server, received) = server(vec![empty(status), ANSWER.to_owned()]);
        let setting = Setting {
            folder: tempfile::tempdir().unwrap(),
            server,
            asked: mpsc::channel().1,
        };
        let [printed, runs] = ["printed", "runs"].map(|name| setting.path(name));
        let print = |run: usize| {
            let (certificate, key) = tls::self_signed(&["me.example".into()], now(), lasts).unwrap();
            let credential = json!({"status": {
                "clientCertificateData": certificate, "clientKeyData": key, "expirationTimestamp": expires,
            }});
            fs::write(printed.with_extension(run.to_string()), credential.to_string()).unwrap();
            tls::certificates(certificate.as_bytes()).unwrap().remove(0)
        };
        let expected = [1, 2].map(print);
        setting.program(
            "login",
            &format!("echo >> {runs:?}; cat {printed:?}.$(($(wc -l < {runs:?})))"),
        );
        let user = "    exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login}\n";
        let kubeconfig = setting.write("    insecure-skip-tls-verify: true\n", user);
        let failure = Notify::new();
        run(keep_connected(
            Some(&kubeconfig),
            &failure,
            |problem| panic!("{problem}"),
            async |client, is_other| {
                assert!(!is_other);
                if client.session().get::<Value>("/").await.is_err() {
                    failure.notify_one();
                    pending::<()>().await;
                }
            },
        ));
        let received: Vec<_> = received.try_iter().collect();
        assert!(received == expected, "{status} {expires:?}");
        assert_eq!(fs::read_to_string(runs).unwrap().len(), 2, "{status} {expires:?}");
    }
}
