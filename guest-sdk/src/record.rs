//! Resource records that a filter makes itself.

use std::time::Duration;

use crate::bindings::dnsweir::filter::types as raw;
use crate::{Class, Name, Rdata};

/// A resource record.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Record(raw::ResourceRecord);

impl Record {
    /// A record of class IN.
    pub fn new<'b>(name: impl Into<Name<'b>>, ttl: Duration, rdata: Rdata) -> Record {
        Record(rdata.into_record(name.into(), ttl))
    }

    /// Changes the class.
    pub fn class(mut self, class: Class) -> Record {
        self.0.class = class.0;
        self
    }

    pub(crate) fn into_raw(self) -> raw::ResourceRecord {
        self.0
    }
}

/// A section of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The records that answer the question.
    Answer,
    /// The name servers of a referral, or the SOA record of a denial.
    Authority,
    /// Related records, such as addresses.
    Additional,
}

impl Section {
    pub(crate) fn into_raw(self) -> raw::Section {
        match self {
            Section::Answer => raw::Section::Answer,
            Section::Authority => raw::Section::Authority,
            Section::Additional => raw::Section::Additional,
        }
    }
}
