//! Leaves out of answers what clients did not ask for: the names of servers in the authority section, and the additional section.
//!
//! What else the authority section holds stays: it says that something is not there, for how long (RFC 2308 section 2.2), and
//! proves it (RFC 4035 section 3.1.3.3), and an answer may be an alias whose target is not there, or a wildcard's. Of a response
//! without answers nothing is removed.

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
