//! A certificate and key from files that something else renews, such as cert-manager.

use std::fs;
use std::path::PathBuf;

use super::served::Served;
use crate::tls::Identity;
use crate::watch::Changes;

/// The paths of the files.
#[derive(Debug, Clone)]
pub struct Files {
    /// The certificate with its intermediates.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Files {
    /// Reads the current files.
    fn read(&self) -> Result<Identity, String> {
        let [certificate, key] = [&self.certificate, &self.key].map(|path| {
            let read = fs::read(path);
            read.map_err(|error| format!("{}: {error}", path.display()))
        });
        Identity::from_pem(&certificate?, &key?).map_err(|(is_key, problem)| {
            let path = if is_key { &self.key } else { &self.certificate };
            format!("{} {problem}", path.display())
        })
    }

    /// Serves the files' certificate; the future watches them and serves each new version.
    ///
    /// # Errors
    /// When they cannot be used now. Later failures keep the certificate in use.
    pub fn follow(self, served: Served) -> Result<impl Future<Output = ()>, String> {
        let mut changes = Changes::default();
        let paths = [self.certificate.clone(), self.key.clone()];
        let first = changes.watch_from(
            || Ok::<_, String>((self.read()?, paths.clone())),
            |(_, paths)| paths,
        );
        let mut identity = first?.0;
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
