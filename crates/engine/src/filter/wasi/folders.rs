//! Folders, readable only during configuration and refreshes: a call for queries would wait for the disk, and
//! so would every other client of its worker.
//!
//! wasmtime-wasi does the work, with paths that cannot leave their folder. Its futures complete in the first
//! poll, since it is allowed to block this thread.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wasmtime::component::Resource;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{self as work, ErrorCode, HostDescriptor as Work};
use wasmtime_wasi::p2::bindings::sync::filesystem::types;
use wasmtime_wasi::p2::bindings::sync::io::error::Error;
use wasmtime_wasi::p2::bindings::sync::io::streams::{InputStream, OutputStream};
use wasmtime_wasi::p2::{FsError, FsResult, ReaddirIterator};

use super::granted::Wasi;

/// Maximum entries that an instance may list, over all folders: their names are in the host's memory.
const LISTED: usize = 1 << 16;

type Fd = Resource<Descriptor>;

/// Polls a future that never waits, and returns its output.
///
/// # Errors
///
/// When it does wait.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> wasmtime::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Ok(output),
        Poll::Pending => wasmtime::bail!("a filter cannot wait"),
    }
}

impl Wasi {
    /// The folders, while they are accessible.
    fn folders(&mut self) -> FsResult<WasiFilesystemCtxView<'_>> {
        if !self.folders_open {
            return Err(ErrorCode::NotPermitted.into());
        }
        Ok(WasiFilesystemCtxView {
            ctx: self.context.filesystem(),
            table: &mut self.table,
        })
    }

    /// Does something with the folders.
    fn work<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut WasiFilesystemCtxView<'_>) -> FsResult<T>,
    ) -> FsResult<T> {
        let mut folders = self.folders()?;
        at_once(work(&mut folders)).map_err(FsError::trap)?
    }

    /// Drops a resource that may have been closed before.
    pub(super) fn forget<T: 'static>(&mut self, resource: Resource<T>) {
        let _ = self.table.delete(resource);
    }
}

impl preopens::Host for Wasi {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Fd, String)>> {
        match self.folders() {
            Ok(mut folders) => preopens::Host::get_directories(&mut folders),
            Err(_) => Ok(Vec::new()),
        }
    }
}

impl types::Host for Wasi {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<types::ErrorCode> {
        Ok(error.downcast()?.into())
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<Error>,
    ) -> wasmtime::Result<Option<types::ErrorCode>> {
        match self.folders() {
            Ok(mut folders) => Ok(work::Host::filesystem_error_code(&mut folders, error)?.map(Into::into)),
            Err(_) => Ok(None),
        }
    }
}

impl types::HostDescriptor for Wasi {
    fn open_at(
        &mut self,
        fd: Fd,
        follow: types::PathFlags,
        path: String,
        how: types::OpenFlags,
        flags: types::DescriptorFlags,
    ) -> FsResult<Fd> {
        let (again, follow) = (Resource::new_borrow(fd.rep()), work::PathFlags::from(follow));
        self.work(async |folders| {
            // Opening a pipe would wait for its writer.
            let kind = Work::stat_at(folders, again, follow, path.clone()).await?.type_;
            if !matches!(
                kind,
                work::DescriptorType::RegularFile | work::DescriptorType::Directory
            ) {
                return Err(ErrorCode::NotPermitted.into());
            }
            Work::open_at(folders, fd, follow, path, how.into(), flags.into()).await
        })
    }

    fn read(&mut self, fd: Fd, length: u64, offset: u64) -> FsResult<(Vec<u8>, bool)> {
        self.work(async |folders| Work::read(folders, fd, length, offset).await)
    }

    fn read_via_stream(&mut self, fd: Fd, offset: u64) -> FsResult<Resource<InputStream>> {
        Work::read_via_stream(&mut self.folders()?, fd, offset)
    }

    fn read_directory(&mut self, fd: Fd) -> FsResult<Resource<ReaddirIterator>> {
        let again = Resource::new_borrow(fd.rep());
        let listing = self.work(async |folders| Work::read_directory(folders, again).await)?;
        // The number of entries is only known by consuming a listing.
        self.listed += self.table.delete(listing)?.into_iter().count();
        if self.listed > LISTED {
            return Err(ErrorCode::InsufficientMemory.into());
        }
        self.work(async |folders| Work::read_directory(folders, fd).await)
    }

    fn stat(&mut self, fd: Fd) -> FsResult<types::DescriptorStat> {
        Ok(self.work(async |folders| Work::stat(folders, fd).await)?.into())
    }

    fn stat_at(&mut self, fd: Fd, follow: types::PathFlags, path: String) -> FsResult<types::DescriptorStat> {
        let stat = self.work(async |folders| Work::stat_at(folders, fd, follow.into(), path).await)?;
        Ok(stat.into())
    }

    fn readlink_at(&mut self, fd: Fd, path: String) -> FsResult<String> {
        self.work(async |folders| Work::readlink_at(folders, fd, path).await)
    }

    fn get_flags(&mut self, fd: Fd) -> FsResult<types::DescriptorFlags> {
        Ok(self
            .work(async |folders| Work::get_flags(folders, fd).await)?
            .into())
    }

    fn get_type(&mut self, fd: Fd) -> FsResult<types::DescriptorType> {
        Ok(self
            .work(async |folders| Work::get_type(folders, fd).await)?
            .into())
    }

    fn is_same_object(&mut self, fd: Fd, other: Fd) -> wasmtime::Result<bool> {
        match self.folders() {
            Ok(mut folders) => at_once(Work::is_same_object(&mut folders, fd, other))?,
            Err(_) => Ok(false),
        }
    }

    fn metadata_hash(&mut self, fd: Fd) -> FsResult<types::MetadataHashValue> {
        Ok(self
            .work(async |folders| Work::metadata_hash(folders, fd).await)?
            .into())
    }

    fn metadata_hash_at(
        &mut self,
        fd: Fd,
        follow: types::PathFlags,
        path: String,
    ) -> FsResult<types::MetadataHashValue> {
        let hash =
            self.work(async |folders| Work::metadata_hash_at(folders, fd, follow.into(), path).await)?;
        Ok(hash.into())
    }

    fn drop(&mut self, fd: Fd) -> wasmtime::Result<()> {
        self.forget(fd);
        Ok(())
    }

    // Advice has no effect, and there is nothing to write back.

    fn advise(&mut self, _: Fd, _: u64, _: u64, _: types::Advice) -> FsResult<()> {
        Ok(())
    }

    fn sync_data(&mut self, _: Fd) -> FsResult<()> {
        Ok(())
    }

    fn sync(&mut self, _: Fd) -> FsResult<()> {
        Ok(())
    }

    // Modifications are refused without a call.

    fn set_size(&mut self, _: Fd, _: u64) -> FsResult<()> {
        read_only()
    }

    fn set_times(&mut self, _: Fd, _: types::NewTimestamp, _: types::NewTimestamp) -> FsResult<()> {
        read_only()
    }

    fn set_times_at(
        &mut self,
        _: Fd,
        _: types::PathFlags,
        _: String,
        _: types::NewTimestamp,
        _: types::NewTimestamp,
    ) -> FsResult<()> {
        read_only()
    }

    fn write(&mut self, _: Fd, _: Vec<u8>, _: u64) -> FsResult<u64> {
        read_only()
    }

    fn write_via_stream(&mut self, _: Fd, _: u64) -> FsResult<Resource<OutputStream>> {
        read_only()
    }

    fn append_via_stream(&mut self, _: Fd) -> FsResult<Resource<OutputStream>> {
        read_only()
    }

    fn create_directory_at(&mut self, _: Fd, _: String) -> FsResult<()> {
        read_only()
    }

    fn link_at(&mut self, _: Fd, _: types::PathFlags, _: String, _: Fd, _: String) -> FsResult<()> {
        read_only()
    }

    fn remove_directory_at(&mut self, _: Fd, _: String) -> FsResult<()> {
        read_only()
    }

    fn rename_at(&mut self, _: Fd, _: String, _: Fd, _: String) -> FsResult<()> {
        read_only()
    }

    fn symlink_at(&mut self, _: Fd, _: String, _: String) -> FsResult<()> {
        read_only()
    }

    fn unlink_file_at(&mut self, _: Fd, _: String) -> FsResult<()> {
        read_only()
    }
}

fn read_only<T>() -> FsResult<T> {
    Err(ErrorCode::ReadOnly.into())
}

impl types::HostDirectoryEntryStream for Wasi {
    fn read_directory_entry(
        &mut self,
        stream: Resource<ReaddirIterator>,
    ) -> FsResult<Option<types::DirectoryEntry>> {
        let entry = self.work(async |folders| {
            work::HostDirectoryEntryStream::read_directory_entry(folders, stream).await
        })?;
        Ok(entry.map(Into::into))
    }

    fn drop(&mut self, stream: Resource<ReaddirIterator>) -> wasmtime::Result<()> {
        self.forget(stream);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config;
    use crate::filter::bindings::dnsweir::filter::host::Level;
    use crate::filter::wasi::Log;

    struct Nobody;

    impl Log for Nobody {
        fn line(&self, _: Level, _: &str) {}
    }

    #[test]
    fn listings_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let grants = config::Wasi {
            folders: vec![config::Folder {
                name: "lists".into(),
                path: folder.path().into(),
                state: 0,
            }],
            ..config::Wasi::default()
        };
        let mut wasi = Wasi::new(&grants, Arc::new(Nobody)).unwrap();
        let mut folders = preopens::Host::get_directories(&mut wasi).unwrap();
        let (fd, _) = folders.remove(0);
        wasi.listed = LISTED - 3;
        let mut list = || types::HostDescriptor::read_directory(&mut wasi, Resource::new_borrow(fd.rep()));
        assert!(list().is_ok());
        let Err(error) = list() else {
            panic!("lists more than it may")
        };
        assert_eq!(error.downcast_ref(), Some(&ErrorCode::InsufficientMemory));
    }
}
