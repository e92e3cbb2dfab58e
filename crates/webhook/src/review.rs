//! Requests and replies of the API server: AdmissionReview, `admission.k8s.io/v1`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use super::injection::Change;
use super::pod::Pod;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The most characters of a parse error that are repeated: it may quote the review.
const QUOTED: usize = 200;

/// A review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Question {
    api_version: String,
    kind: String,
    request: Request,
}

/// The request in a review.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    uid: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: Option<String>,
    operation: String,
    #[serde(default)]
    namespace: Option<String>,
    /// The object to be created.
    #[serde(default)]
    object: Option<Pod>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    group: String,
    resource: String,
}

impl Request {
    /// Parses the request in a review.
    ///
    /// # Errors
    /// What is wrong with the review.
    pub fn read(octets: &[u8]) -> Result<Request, String> {
        let question: Question = serde_json::from_slice(octets).map_err(|error| {
            let error: String = error.to_string().chars().take(QUOTED).collect();
            format!("this is not an {KIND} about a pod: {error}")
        })?;
        let Question {
            api_version,
            kind,
            request,
        } = question;
        if (api_version.as_str(), kind.as_str()) != (API_VERSION, KIND) {
            return Err(format!("this is not an {KIND} of {API_VERSION}"));
        }
        if request.uid.is_empty() {
            return Err(format!("this {KIND} has no uid"));
        }
        Ok(request)
    }

    /// The pod to be created, if this is a request to create one.
    pub fn created_pod(&self) -> Option<&Pod> {
        let Resource { group, resource } = &self.resource;
        let sub_resource = self.sub_resource.as_deref().unwrap_or_default();
        let is_pod = group.is_empty() && resource == "pods" && sub_resource.is_empty();
        self.object
            .as_ref()
            .filter(|_| is_pod && self.operation == "CREATE")
    }

    /// The namespace of the request.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// The reply: the pod may be created, with the change if there is one.
    pub fn answer(&self, change: Option<&Change>) -> String {
        let mut response = json!({"uid": self.uid, "allowed": true});
        if let Some(Change { patch, warnings }) = change {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(patch.to_string()).into();
            if !warnings.is_empty() {
                response["warnings"] = Value::from(warnings.clone());
            }
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "response": response}).to_string()
    }
}
