//! Certificates from files that something else renews, such as cert-manager: our own with its key, and those
//! of the authorities of clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dnsweir_config::tls::{Authorities, Identity};
use dnsweir_os::watch::Changes;

use super::served::Served;

/// The paths of the files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate with its intermediates.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The file with the authorities of clients.
pub(super) struct Clients {
    path: PathBuf,
    changes: Changes,
    /// Those that were read last.
    pub authorities: Authorities,
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn authorities(path: &Path) -> Result<Authorities, String> {
    Authorities::from_pem(&read(path)?).map_err(|problem| format!("{} {problem}", path.display()))
}

impl Files {
    /// Reads the current files.
    fn read(&self) -> Result<Identity, String> {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| read(path));
        Identity::from_pem(&certificate?, &key?).map_err(|(is_key, problem)| {
            let path = if is_key { &self.key } else { &self.certificate };
            format!("{} {problem}", path.display())
        })
    }

    /// Serves the files' certificate; the future watches them and serves each new version.
    ///
    /// # Errors
    /// When they cannot be used now. Later failures keep the certificate in use.
    pub(super) fn follow(self, served: Rc<Served>) -> Result<impl Future<Output = ()>, String> {
        let mut changes = Changes::default();
        let paths = [self.certificate.clone(), self.key.clone()];
        let (first, _) = changes.watch_from(|| (self.read(), paths.clone()), |(_, paths)| paths);
        let mut identity = first?;
        served.serve(&identity)?;
        Ok(async move {
            loop {
                changes.changed().await;
                let taken = match self.read() {
                    Ok(same) if same == identity => Ok(()),
                    Ok(new) => served.serve(&new).map(|()| identity = new),
                    Err(problem) => Err(problem),
                };
                if let Err(problem) = taken {
                    served.failed(&problem);
                }
                changes.watch(&paths);
            }
        })
    }
}

impl Clients {
    /// Reads the file, and watches it from then on.
    ///
    /// # Errors
    /// When it cannot be used now.
    pub fn read(path: PathBuf) -> Result<Clients, String> {
        let (mut changes, paths) = (Changes::default(), [path.clone()]);
        let (first, _) = changes.watch_from(|| (authorities(&path), paths.clone()), |(_, paths)| paths);
        let authorities = first?;
        Ok(Clients {
            path,
            changes,
            authorities,
        })
    }

    /// Requires certificates of each new version's authorities from clients. Failures keep those in use.
    pub async fn follow(mut self, served: Rc<Served>) {
        loop {
            self.changes.changed().await;
            let taken = match authorities(&self.path) {
                Ok(same) if same == self.authorities => Ok(()),
                Ok(new) => served.require(new.clone()).map(|()| self.authorities = new),
                Err(problem) => Err(problem),
            };
            if let Err(problem) = taken {
                served.failed(&problem);
            }
            self.changes.watch(std::slice::from_ref(&self.path));
        }
    }
}
