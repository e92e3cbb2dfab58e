//! Streams. Standard output and standard error go to the log line by line, standard input is at its end, and
//! other streams read the files of [`folders`](super::folders).

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::cli::{stderr, stdin, stdout};
use wasmtime_wasi::p2::bindings::sync::io::streams::{self, InputStream, OutputStream};
use wasmtime_wasi::p2::bindings::sync::io::{error, poll};
use wasmtime_wasi::p2::{StreamError, StreamResult};

use super::clocks::pollable;
use super::folders::at_once;
use super::granted::Wasi;

/// Maximum bytes per write, the same as for wasmtime-wasi's blocking writes.
const WRITE: usize = 4096;

/// Maximum bytes per read.
const READ: u64 = 64 << 10;

const STDOUT: u32 = 1;
const STDERR: u32 = 2;
/// Never an index in the table, which is smaller.
const STDIN: u32 = u32::MAX;

impl stdin::Host for Wasi {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<InputStream>> {
        Ok(Resource::new_own(STDIN))
    }
}

impl stdout::Host for Wasi {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<OutputStream>> {
        Ok(Resource::new_own(STDOUT))
    }
}

impl stderr::Host for Wasi {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<OutputStream>> {
        Ok(Resource::new_own(STDERR))
    }
}

impl error::Host for Wasi {}

impl error::HostError for Wasi {
    fn to_debug_string(&mut self, error: Resource<error::Error>) -> wasmtime::Result<String> {
        let known = self.table.get(&error);
        Ok(known.map_or_else(|_| "an earlier error".to_owned(), |error| format!("{error:#}")))
    }

    fn drop(&mut self, error: Resource<error::Error>) -> wasmtime::Result<()> {
        self.forget(error);
        Ok(())
    }
}

impl streams::Host for Wasi {
    fn convert_stream_error(&mut self, error: StreamError) -> wasmtime::Result<streams::StreamError> {
        match error {
            StreamError::Closed => Ok(streams::StreamError::Closed),
            StreamError::LastOperationFailed(error) => {
                Ok(streams::StreamError::LastOperationFailed(self.table.push(error)?))
            }
            StreamError::Trap(error) => Err(error),
        }
    }
}

impl streams::HostOutputStream for Wasi {
    fn check_write(&mut self, _: Resource<OutputStream>) -> StreamResult<u64> {
        Ok(WRITE as u64)
    }

    fn write(&mut self, stream: Resource<OutputStream>, octets: Vec<u8>) -> StreamResult<()> {
        if octets.len() > WRITE {
            return Err(StreamError::trap("it writes more at once than the stream takes"));
        }
        self.output.write(stream.rep() == STDERR, &octets);
        Ok(())
    }

    fn write_zeroes(&mut self, stream: Resource<OutputStream>, length: u64) -> StreamResult<()> {
        let zeroes = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(WRITE + 1)];
        streams::HostOutputStream::write(self, stream, zeroes)
    }

    fn blocking_write_and_flush(
        &mut self,
        stream: Resource<OutputStream>,
        octets: Vec<u8>,
    ) -> StreamResult<()> {
        streams::HostOutputStream::write(self, stream, octets)
    }

    fn blocking_write_zeroes_and_flush(
        &mut self,
        stream: Resource<OutputStream>,
        length: u64,
    ) -> StreamResult<()> {
        streams::HostOutputStream::write_zeroes(self, stream, length)
    }

    fn flush(&mut self, _: Resource<OutputStream>) -> StreamResult<()> {
        Ok(())
    }

    fn blocking_flush(&mut self, _: Resource<OutputStream>) -> StreamResult<()> {
        Ok(())
    }

    fn splice(
        &mut self,
        into: Resource<OutputStream>,
        from: Resource<InputStream>,
        length: u64,
    ) -> StreamResult<u64> {
        let octets = streams::HostInputStream::read(self, from, length.min(WRITE as u64))?;
        self.output.write(into.rep() == STDERR, &octets);
        Ok(octets.len() as u64)
    }

    fn blocking_splice(
        &mut self,
        into: Resource<OutputStream>,
        from: Resource<InputStream>,
        length: u64,
    ) -> StreamResult<u64> {
        streams::HostOutputStream::splice(self, into, from, length)
    }

    fn subscribe(&mut self, _: Resource<OutputStream>) -> wasmtime::Result<Resource<poll::Pollable>> {
        Ok(pollable())
    }

    fn drop(&mut self, _: Resource<OutputStream>) -> wasmtime::Result<()> {
        Ok(())
    }
}

impl streams::HostInputStream for Wasi {
    /// Blocks until the file has been read, which is allowed while folders are open.
    fn read(&mut self, stream: Resource<InputStream>, length: u64) -> StreamResult<Vec<u8>> {
        if stream.rep() == STDIN {
            return Err(StreamError::Closed);
        }
        if !self.folders_open {
            let closed =
                wasmtime::format_err!("files can only be read while the filter is configured or refreshed");
            return Err(StreamError::LastOperationFailed(closed));
        }
        let stream = self.table.get_mut(&stream).map_err(trap)?;
        let read = at_once(stream.blocking_read(length.min(READ) as usize)).map_err(StreamError::Trap)?;
        Ok(read?.into())
    }

    fn blocking_read(&mut self, stream: Resource<InputStream>, length: u64) -> StreamResult<Vec<u8>> {
        streams::HostInputStream::read(self, stream, length)
    }

    fn skip(&mut self, stream: Resource<InputStream>, length: u64) -> StreamResult<u64> {
        Ok(streams::HostInputStream::read(self, stream, length)?.len() as u64)
    }

    fn blocking_skip(&mut self, stream: Resource<InputStream>, length: u64) -> StreamResult<u64> {
        streams::HostInputStream::skip(self, stream, length)
    }

    fn subscribe(&mut self, _: Resource<InputStream>) -> wasmtime::Result<Resource<poll::Pollable>> {
        Ok(pollable())
    }

    fn drop(&mut self, stream: Resource<InputStream>) -> wasmtime::Result<()> {
        self.forget(stream);
        Ok(())
    }
}

fn trap(error: impl Into<wasmtime::Error>) -> StreamError {
    StreamError::Trap(error.into())
}
