//! The bill of materials, in SPDX 2.3 JSON: every crate and Debian package in the image.

use serde_json::{Value, json};

use crate::Failure;
use crate::dependencies::Dependency;
use crate::elf::Processor;
use crate::source::Source;
use crate::system::Package;

/// Returns the whole document.
pub fn spdx<'p>(
    source: &Source,
    processor: Processor,
    dependencies: &[Dependency],
    packages: impl Iterator<Item = &'p Package>,
) -> Result<String, Failure> {
    let main = "SPDXRef-dnsweir";
    let mut parts = Vec::new();
    let mut relations = vec![json!({
        "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": main,
    })];
    for dependency in dependencies {
        let own = dependency.name == "dnsweir";
        let id = match own {
            true => main.to_owned(),
            false => identifier(&format!("crate-{}-{}", dependency.name, dependency.version)),
        };
        let locator = format!("pkg:cargo/{}@{}", dependency.name, dependency.version);
        let mut described = part(
            &id,
            &dependency.name,
            &dependency.version,
            &dependency.licence,
            &locator,
        );
        if let Some(sum) = &dependency.checksum {
            described["checksums"] = json!([{"algorithm": "SHA256", "checksumValue": sum}]);
        }
        if !own {
            relations.push(json!({
                "spdxElementId": main, "relationshipType": "STATIC_LINK", "relatedSpdxElement": id,
            }));
        }
        parts.push(described);
    }
    for package in packages {
        let id = identifier(&format!("deb-{}", package.name));
        let version = package.version.replace('+', "%2B").replace(':', "%3A");
        let locator = format!(
            "pkg:deb/debian/{}@{version}?arch={}",
            package.name,
            processor.name()
        );
        parts.push(part(
            &id,
            &package.name,
            &package.version,
            "NOASSERTION",
            &locator,
        ));
        relations.push(json!({
            "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": id,
        }));
    }
    document(source, processor, &parts, &relations)
}

/// The document around the parts.
fn document(
    source: &Source,
    processor: Processor,
    parts: &[Value],
    relations: &[Value],
) -> Result<String, Failure> {
    let commit = source.commit.as_deref().unwrap_or("no-commit");
    let name = format!("dnsweir-{}-{}", source.version, processor.name());
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": format!("https://spdx.org/spdxdocs/{name}-{commit}"),
        "creationInfo": {"created": source.date()?, "creators": ["Tool: dnsweir-packaging"]},
        "packages": parts,
        "relationships": relations,
    });
    let text = serde_json::to_string_pretty(&document).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

fn part(id: &str, name: &str, version: &str, licence: &str, locator: &str) -> Value {
    json!({
        "SPDXID": id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": false,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator,
        }],
    })
}

/// An identifier: SPDX allows only letters, digits, dots and hyphens (clause 7.2).
fn identifier(name: &str) -> String {
    let allowed = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    format!("SPDXRef-{}", name.chars().map(allowed).collect::<String>())
}
