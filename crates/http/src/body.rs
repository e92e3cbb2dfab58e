//! Reads bodies within bounds.

use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Bytes, Incoming};

use super::error::Error;

/// Reads a body of at most `most` bytes.
///
/// # Errors
/// If it is larger, or the connection breaks.
pub async fn collect(body: Incoming, most: usize) -> Result<Vec<u8>, Error> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut octets = Vec::with_capacity(expected.min(most));
    let mut chunks = Chunks::new(body, most);
    while let Some(chunk) = chunks.next().await? {
        octets.extend_from_slice(&chunk);
    }
    Ok(octets)
}

/// A body read in the chunks in which it comes.
#[derive(Debug)]
pub struct Chunks {
    body: Incoming,
    most: usize,
    /// How much of that may still come.
    left: usize,
}

impl Chunks {
    /// Reads at most `most` bytes in all.
    pub fn new(body: Incoming, most: usize) -> Chunks {
        Chunks {
            body,
            most,
            left: most,
        }
    }

    /// The next chunk; `None` at the end of the body. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the body is too large, as soon as that is known, or the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if self.body.size_hint().lower() > self.left as u64 {
            return Err(Error::TooLarge(self.most));
        }
        while let Some(frame) = self.body.frame().await {
            // Trailers are ignored.
            let Ok(data) = frame?.into_data() else { continue };
            let left = self.left.checked_sub(data.len());
            self.left = left.ok_or(Error::TooLarge(self.most))?;
            return Ok(Some(data));
        }
        Ok(None)
    }
}

/// A body read line by line, for as long as the server goes on.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    read: Vec<u8>,
    /// Where the next line begins in `read`.
    begins: usize,
    /// Up to where it has no end.
    searched: usize,
    most: usize,
}

impl Lines {
    /// Reads lines of at most `most` bytes.
    pub fn new(body: Incoming, most: usize) -> Lines {
        Lines {
            body,
            read: Vec::new(),
            begins: 0,
            searched: 0,
            most,
        }
    }

    /// The next line, without its end; `None` at the end of the body. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If a line is too long, or the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        loop {
            let mut unsearched = self.read[self.searched..].iter();
            if let Some(at) = unsearched.position(|octet| *octet == b'\n') {
                let ends = self.searched + at;
                let line = self.read[self.begins..ends].to_vec();
                self.begins = ends + 1;
                self.searched = self.begins;
                return Ok(Some(line));
            }
            self.read.drain(..self.begins);
            self.begins = 0;
            self.searched = self.read.len();
            if self.read.len() > self.most {
                return Err(Error::TooLarge(self.most));
            }
            match self.body.frame().await {
                // Trailers are ignored.
                Some(frame) => self.read.extend(frame?.into_data().iter().flatten()),
                None if self.read.is_empty() => return Ok(None),
                None => {
                    self.searched = 0;
                    return Ok(Some(std::mem::take(&mut self.read)));
                }
            }
        }
    }
}
