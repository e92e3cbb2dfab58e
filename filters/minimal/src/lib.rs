//! Leaves out of answers what clients did not ask for: the authority and additional sections.
//!
//! Of a response without answers nothing is removed: there, the authority section is what says why, and for how long.

use dnsweir_filter::{
    Filter, Invalid, Manifest, Rcode, Response, ResponseEdit, ResponseVerdict, Section, Selector, Setup,
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
            .remove(Selector::all().section(Section::Authority))
            .remove(Selector::all().section(Section::Additional));
        ResponseVerdict::edit(edit)
    }
}

dnsweir_filter::export!(Minimal);
