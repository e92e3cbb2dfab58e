//! Strips records that clients did not ask for from answers: NS records in the authority section, and the
//! additional section.
//!
//! The other authority records stay: they say that something does not exist, for how long (RFC 2308
//! section 2.2), and prove it (RFC 4035 section 3.1.3.3); an answer may be an alias to a missing name, or
//! come from a wildcard. A response without answers is left alone.

use dnsweir_filter::{
    Filter, Invalid, Manifest, Rcode, Response, ResponseEdit, ResponseVerdict, Section, Selector, Setup, Type,
};

/// The filter.
pub struct Minimal;

impl Filter for Minimal {
    fn configure(_: Setup<'_>) -> Result<(Minimal, Manifest), Invalid> {
        Ok((Minimal, Manifest::new().responses()))
    }

    fn response(&mut self, response: &Response<'_>) -> ResponseVerdict {
        if response.rcode() != Rcode::NOERROR || response.answer_count() == 0 {
            return ResponseVerdict::pass();
        }
        let edit = ResponseEdit::new()
            .remove(Selector::of_type(Type::NS).section(Section::Authority))
            .remove(Selector::all().section(Section::Additional));
        ResponseVerdict::edit(edit)
    }
}

dnsweir_filter::export!(Minimal);
