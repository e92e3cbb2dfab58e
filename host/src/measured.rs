//! What `bench/` measures from inside, under the names of the rooms that it is in.

/// Keeping answers.
pub mod cache {
    pub use crate::cache::{Cache, Key, KeyFlags, KeyHasher, Kind, Stored};
}

/// Reading a configuration.
pub mod config {
    pub use crate::config::{Config, Report, parse};
}

/// Reading and writing messages.
pub mod dns {
    pub use crate::dns::{HEADER, MESSAGE_MAXIMUM, QUERY_MAXIMUM, QUERY_RECORDS, Transport};
    /// The records of an answer.
    pub mod records {
        pub use crate::dns::records::{Answer, BadRecords};
    }
    /// Replies, written into buffers.
    pub mod reply {
        pub use crate::dns::reply::{Body, Head, Ttl, write};
    }
}

/// Running filters.
pub mod filter {
    pub use crate::filter::{BUILTINS, Batch, CompiledCache, Engine, Filter, Query};
}

/// Folders for what is kept over restarts.
pub mod private_folder {
    pub use crate::private_folder::PrivateFolder;
}

/// Serving queries.
pub mod serve {
    pub use crate::serve::generation::Generation;
    pub use crate::serve::{Admission, Batch, Client, DeferredReply, Live, Replies, Shared, Worker};
}
