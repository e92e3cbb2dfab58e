//! The hybrid key exchange X25519MLKEM768 (draft-ietf-tls-ecdhe-mlkem): X25519 and ML-KEM-768 (FIPS 203), so
//! that recorded traffic stays secret as long as either is unbroken.
//!
//! rustls offers it only with another crypto library, which needs a C compiler and adds half a minute to the
//! build. Here, X25519 is ring's, like everything else, and ML-KEM is a separate crate.

use ml_kem::array::Array;
use ml_kem::ml_kem_768::{Ciphertext, DecapsulationKey, EncapsulationKey};
use ml_kem::{Decapsulate as _, KeyExport as _};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::crypto::ring::kx_group::X25519;
use rustls::crypto::{ActiveKeyExchange, CompletedKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved, ProtocolVersion};

/// Bytes of an encapsulation key, which starts a client's share (FIPS 203 table 3).
const KEY: usize = 1184;
/// Bytes of a ciphertext, which starts a server's share.
const CIPHERTEXT: usize = 1088;

const INVALID: Error = Error::PeerMisbehaved(PeerMisbehaved::InvalidKeyShare);

/// The group.
#[derive(Debug)]
pub(super) struct X25519MlKem768;

/// A client waiting for the server's share.
struct Begun {
    key: DecapsulationKey,
    classical: Box<dyn ActiveKeyExchange>,
    share: Vec<u8>,
}

impl SupportedKxGroup for X25519MlKem768 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let key = DecapsulationKey::from_seed(random::<64>()?.into());
        let classical = X25519.start()?;
        let share = [&key.encapsulation_key().to_bytes()[..], classical.pub_key()].concat();
        Ok(Box::new(Begun {
            key,
            classical,
            share,
        }))
    }

    /// The server needs the client's share to make its own.
    fn start_and_complete(&self, client: &[u8]) -> Result<CompletedKeyExchange, Error> {
        let (key, point) = client.split_at_checked(KEY).ok_or(INVALID)?;
        let key = Array::try_from(key).map_err(|_| INVALID)?;
        // FIPS 203 section 7.2: a key with unreduced coefficients is invalid.
        let key = EncapsulationKey::new(&key).map_err(|_| INVALID)?;
        let (ciphertext, secret) = key.encapsulate_deterministic(&random::<32>()?.into());
        let classical = X25519.start_and_complete(point)?;
        Ok(CompletedKeyExchange {
            group: self.name(),
            pub_key: [&ciphertext[..], &classical.pub_key].concat(),
            secret: both(&secret, &classical.secret),
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519MLKEM768
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        version == ProtocolVersion::TLSv1_3
    }
}

impl ActiveKeyExchange for Begun {
    fn complete(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        let (ciphertext, point) = server.split_at_checked(CIPHERTEXT).ok_or(INVALID)?;
        let ciphertext = Ciphertext::try_from(ciphertext).map_err(|_| INVALID)?;
        let classical = self.classical.complete(point)?;
        Ok(both(&self.key.decapsulate(&ciphertext), &classical))
    }

    /// A server that does not support the group can use this share without another round trip.
    fn hybrid_component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.classical.group(), self.classical.pub_key()))
    }

    fn complete_hybrid_component(self: Box<Self>, server: &[u8]) -> Result<SharedSecret, Error> {
        self.classical.complete(server)
    }

    fn pub_key(&self) -> &[u8] {
        &self.share
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        X25519MlKem768.name()
    }
}

/// The shared secret: that of ML-KEM, then that of X25519.
fn both(secret: &[u8], classical: &SharedSecret) -> SharedSecret {
    SharedSecret::from([secret, classical.secret_bytes()].concat())
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut octets = [0; N];
    let drawn = SystemRandom::new().fill(&mut octets);
    drawn.map_err(|_| Error::FailedToGetRandomBytes)?;
    Ok(octets)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use rustls::server::ParsedCertificate;
    use rustls::{ClientConnection, ServerConnection};
    use sha2::{Digest as _, Sha256};
    use shake::{ExtendableOutput as _, Shake128, Update as _, XofReader as _};

    use super::super::{Client, Identity, Trust, certificates, self_signed, server, server_name};
    use super::*;

    #[test]
    fn both_sides_come_to_one_secret() {
        let client = X25519MlKem768.start().unwrap();
        assert_eq!(client.pub_key().len(), KEY + 32);
        let server = X25519MlKem768.start_and_complete(client.pub_key()).unwrap();
        assert_eq!(server.pub_key.len(), CIPHERTEXT + 32);
        let secret = client.complete(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
        assert_eq!(secret.secret_bytes().len(), 64);
    }

    #[test]
    fn our_clients_and_servers_take_it() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let (certificate, key) =
            self_signed(&["dns.example".into()], now, Duration::from_secs(3600)).unwrap();
        let identity = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
        let certificate = certificates(certificate.as_bytes()).unwrap().remove(0);
        let key = ParsedCertificate::try_from(&certificate)
            .unwrap()
            .subject_public_key_info();
        let trust = Trust {
            pins: vec![Sha256::digest(&key).into()],
            ..Trust::default()
        };
        let name = server_name("dns.example").unwrap();
        let client = Client::new(&trust, &[b"dot"]).config().unwrap();
        let mut client = ClientConnection::new(client, name).unwrap();
        let mut server = ServerConnection::new(server(&identity, &[b"dot"], None).unwrap()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut flight = Vec::new();
            client.write_tls(&mut flight).unwrap();
            server.read_tls(&mut &flight[..]).unwrap();
            server.process_new_packets().unwrap();
            flight.clear();
            server.write_tls(&mut flight).unwrap();
            client.read_tls(&mut &flight[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        let group = |group: Option<&dyn SupportedKxGroup>| group.map(SupportedKxGroup::name);
        let agreed = Some(NamedGroup::X25519MLKEM768);
        assert_eq!(group(client.negotiated_key_exchange_group()), agreed);
        assert_eq!(group(server.negotiated_key_exchange_group()), agreed);
    }

    #[test]
    fn a_server_may_take_the_classical_half() {
        let client = X25519MlKem768.start().unwrap();
        let (group, share) = client.hybrid_component().unwrap();
        assert_eq!((group, share.len()), (NamedGroup::X25519, 32));
        let server = X25519.start_and_complete(share).unwrap();
        let secret = client.complete_hybrid_component(&server.pub_key).unwrap();
        assert_eq!(secret.secret_bytes(), server.secret.secret_bytes());
    }

    #[test]
    fn shares_of_another_length_or_out_of_range_are_refused() {
        let share = X25519MlKem768.start().unwrap().pub_key().to_vec();
        let mut unreduced = share.clone();
        unreduced[..3].fill(0xff);
        for wrong in [
            &share[..KEY],
            &share[..KEY + 31],
            &[&share[..], &[0]].concat(),
            &[],
            &unreduced,
        ] {
            assert!(
                X25519MlKem768.start_and_complete(wrong).is_err(),
                "{}",
                wrong.len()
            );
        }
        for length in [0, CIPHERTEXT, CIPHERTEXT + 31, CIPHERTEXT + 33] {
            let client = X25519MlKem768.start().unwrap();
            assert!(client.complete(&vec![1; length]).is_err(), "{length}");
        }
    }

    /// The accumulated vectors of C2SP's CCTV: SHAKE128 of an empty input generates keys, messages and
    /// ciphertexts, and SHAKE128 of all outputs is compared. 100 rounds, as in Go's standard library.
    #[test]
    fn ml_kem_is_the_published_one() {
        let mut drawn = Shake128::default().finalize_xof();
        let mut draw = |octets: &mut [u8]| drawn.read(octets);
        let mut all = Shake128::default();
        for _ in 0..100 {
            let (mut seed, mut message, mut other) = ([0; 64], [0; 32], [0; CIPHERTEXT]);
            draw(&mut seed);
            let key = DecapsulationKey::from_seed(seed.into());
            all.update(&key.encapsulation_key().to_bytes());
            draw(&mut message);
            let (ciphertext, secret) = key.encapsulation_key().encapsulate_deterministic(&message.into());
            all.update(&ciphertext);
            all.update(&secret);
            assert_eq!(key.decapsulate(&ciphertext), secret);
            draw(&mut other);
            all.update(&key.decapsulate(&other.into()));
        }
        let mut digest = [0; 32];
        all.finalize_xof().read(&mut digest);
        let digest: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(
            digest,
            "1114b1b6699ed191734fa339376afa7e285c9e6acf6ff0177d346696ce564415"
        );
    }
}
