//! The list of clusters: taken whole from the source that counts most.

use std::path::PathBuf;

use super::{Resolver, Setting, Shape, quoted};
use crate::config::address::{GCS, Wrong, parse_gcs, parse_ray_address, split_cluster};
use crate::config::model::Cluster;
use crate::config::problem::Problem;
use crate::config::raw::{Entry, RawCluster, RawValue};
use crate::config::setting::{self, Read};
use crate::config::sources::CLUSTERS_VARIABLE;

/// A cluster that is not checked against the others yet.
struct Candidate {
    cluster: Cluster,
    label: String,
    place: String,
}

impl Resolver {
    pub(super) fn clusters(
        &mut self,
        file: Option<Vec<RawCluster>>,
        environment: Option<&[String]>,
        flags: &[String],
    ) -> Vec<Cluster> {
        let mut chosen: Option<Vec<Candidate>> = None;
        if let Some(clusters) = file {
            let candidates: Vec<Candidate> = clusters
                .into_iter()
                .map(|raw| self.file_cluster(raw))
                .collect();
            self.check_names(&candidates);
            if !candidates.is_empty() {
                chosen = Some(candidates);
            }
        }
        let flags = (!flags.is_empty()).then_some(flags);
        for (texts, label, place) in [
            (environment, CLUSTERS_VARIABLE, "the environment"),
            (flags, "--ray-address", "the command line"),
        ] {
            let Some(texts) = texts else { continue };
            let candidates: Vec<Candidate> = texts
                .iter()
                .map(|text| self.named_cluster(text, label, place, chosen.as_deref()))
                .collect();
            self.check_names(&candidates);
            chosen = Some(candidates);
        }
        let candidates = chosen.unwrap_or_else(|| {
            vec![Candidate {
                cluster: Cluster::default(),
                label: String::new(),
                place: "default".to_owned(),
            }]
        });
        for Candidate { cluster, place, .. } in &candidates {
            let token_file = cluster
                .token_file
                .as_ref()
                .map(|path| quoted(&path.display()));
            for (key, value) in [
                ("name", Some(quoted(&cluster.name))),
                ("ray_address", Some(quoted(&cluster.ray_address))),
                ("token_file", token_file),
                ("gcs_address", Some(quoted(&cluster.gcs))),
            ] {
                let Some(value) = value else { continue };
                self.settings.push(Setting {
                    section: "cluster",
                    key,
                    value,
                    origin: place.clone(),
                });
            }
        }
        candidates
            .into_iter()
            .map(|candidate| candidate.cluster)
            .collect()
    }

    fn file_cluster(&mut self, raw: RawCluster) -> Candidate {
        let mut cluster = Cluster::default();
        if let Some(entry) = &raw.name
            && let Some(name) = self.read(entry, Shape::Open, cluster_name)
        {
            cluster.name = name;
        }
        match &raw.ray_address {
            Some(entry) => {
                let read =
                    |value: &RawValue| parse_ray_address(&setting::text(value, "an address")?);
                if let Some(address) = self.read(entry, Shape::Address, read) {
                    cluster.ray_address = address;
                }
            }
            None => self.problems.push(Problem {
                key: "cluster.ray_address".to_owned(),
                place: raw.place.clone(),
                found: "a [[cluster]] without it".to_owned(),
                expected: "the address of the head's dashboard, such as \"http://127.0.0.1:8265\""
                    .to_owned(),
                hint: None,
            }),
        }
        if let Some(entry) = &raw.token_file {
            let read =
                |value: &RawValue| setting::text(value, "the path of a file with Ray's token");
            cluster.token_file = self.read(entry, Shape::Path, read).map(PathBuf::from);
        }
        if let Some(entry) = &raw.gcs_address {
            let read = |value: &RawValue| parse_gcs(&setting::text(value, GCS)?);
            if let Some(gcs) = self.read(entry, Shape::Open, read) {
                cluster.gcs = gcs;
            }
        }
        Candidate {
            cluster,
            label: "cluster.name".to_owned(),
            place: raw.place,
        }
    }

    /// `NAME=URL`. A cluster that a source below names too keeps the token file and the GCS given there: the
    /// address is what differs between places, and a token is not to be lost by overriding it.
    fn named_cluster(
        &mut self,
        text: &str,
        label: &str,
        place: &str,
        below: Option<&[Candidate]>,
    ) -> Candidate {
        let (name, url) = split_cluster(text);
        let mut cluster = Cluster::default();
        let entry = |value: &str| Entry {
            label: label.to_owned(),
            place: place.to_owned(),
            value: RawValue::Word(value.to_owned()),
        };
        if let Some(name) = name
            && let Some(name) = self.read(&entry(name), Shape::Open, cluster_name)
        {
            cluster.name = name;
        }
        let read = |value: &RawValue| parse_ray_address(&setting::text(value, "URL or NAME=URL")?);
        if let Some(address) = self.read(&entry(url), Shape::Address, read) {
            cluster.ray_address = address;
        }
        let same = below.and_then(|below| {
            below
                .iter()
                .find(|candidate| candidate.cluster.name == cluster.name)
        });
        if let Some(same) = same {
            cluster.token_file = same.cluster.token_file.clone();
            cluster.gcs = same.cluster.gcs.clone();
        }
        Candidate {
            cluster,
            label: label.to_owned(),
            place: place.to_owned(),
        }
    }

    fn check_names(&mut self, candidates: &[Candidate]) {
        for (i, candidate) in candidates.iter().enumerate() {
            let name = &candidate.cluster.name;
            if candidates[..i]
                .iter()
                .any(|earlier| earlier.cluster.name == *name)
            {
                self.problems.push(Problem {
                    key: candidate.label.clone(),
                    place: candidate.place.clone(),
                    found: format!("a second cluster named \"{name}\""),
                    expected: "a name of its own for each cluster".to_owned(),
                    hint: Some(match candidate.label.as_str() {
                        "cluster.name" => "give it a `name`".to_owned(),
                        _ => "write NAME=URL, as in gpu=http://10.0.0.2:8265".to_owned(),
                    }),
                });
            }
        }
    }
}

fn cluster_name(value: &RawValue) -> Read<String> {
    const EXPECTED: &str = "a name of lower-case letters, digits and -, at most 63 characters";
    let name = setting::text(value, EXPECTED)?;
    let fits = name.len() <= 63
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-');
    if fits {
        Ok(name)
    } else {
        Err(Wrong {
            expected: EXPECTED.to_owned(),
            hint: None,
        })
    }
}
