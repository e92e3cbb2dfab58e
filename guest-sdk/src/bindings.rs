//! The guest's side of `wit/`, generated. Nothing here is meant for filter authors: the rest of the
//! crate wraps every type of it.

#![allow(missing_docs, reason = "generated")]

wit_bindgen::generate!({
    path: "../wit",
    world: "filter",
    pub_export_macro: true,
    additional_derives: [PartialEq],
});
