//! From files to what is [`Loaded`]: everything is read and checked, and nothing that runs is changed.

use std::{path::Path, sync::Arc, time::SystemTime};

use isthmus_pki::Bundle;

use super::{
    attest::Attestor,
    audit::{self, Log},
    config::{AuditConfig, Config, IssuerConfig, WorkloadApiConfig},
    enroll::Remote,
    error::Error,
    files,
    handle::{Handle, Sections},
    issuing::{self, Issuer, SiteCa},
    loaded::Loaded,
    material::{self, Material},
    registration::Registry,
    rotation::{self, Inputs, ReissueOrder, Rotation},
    supplier::Supplier,
    trust::Trust,
    watching::Seen,
    workload::Supply,
};

/// Loads and checks every file as [`super::start`] would, and keeps nothing.
pub fn check(
    config: Option<&Config>,
    issuer: Option<&IssuerConfig>,
    node: Option<(&str, &str)>,
    now: SystemTime,
) -> Result<(), Error> {
    let rotation = config.map(|config| Rotation::open(&config.rotation.dir)).transpose()?;
    load_files(rotation.as_ref(), config, issuer, node, now).map(drop)
}

/// What the files come to, under what rotations have put in force.
#[derive(Default)]
struct Files {
    /// `[identity] trust_bundle` as it was read.
    bundle: Option<Bundle>,
    material: Option<Material>,
    /// With where it was read from.
    site_ca: Option<(SiteCa, IssuerConfig)>,
    trust: Option<Arc<Trust>>,
    reissue: ReissueOrder,
}

fn load_files(
    rotation: Option<&Rotation>,
    config: Option<&Config>,
    issuer: Option<&IssuerConfig>,
    node: Option<(&str, &str)>,
    now: SystemTime,
) -> Result<Files, Error> {
    let (Some(config), Some(rotation)) = (config, rotation) else {
        return if issuer.is_some() { Err(Error::IssuerAlone) } else { Ok(Files::default()) };
    };
    let site = node.map(|(site, _)| site);
    let bundle = files::bundle(&config.trust_bundle).map_err(material::Error::from)?;
    let in_force = rotation.reconcile(&inputs(&bundle, config, issuer, site), now, false)?;
    let material = Material::load_under(config, in_force.bundle.clone(), node, now)?;
    let trust = Arc::new(Trust::under(in_force.bundle, in_force.policy, in_force.crls));
    let site_ca = match in_force.issuer {
        Some(issuer) => Some((load_site_ca(&issuer, &trust, site, now)?, issuer)),
        None => None,
    };
    let reissue = in_force.reissue;
    Ok(Files { bundle: Some(bundle), material: Some(material), site_ca, trust: Some(trust), reissue })
}

fn inputs<'a>(
    bundle: &'a Bundle,
    config: &'a Config,
    issuer: Option<&'a IssuerConfig>,
    site: Option<&'a str>,
) -> Inputs<'a> {
    let (charter, longest_leaf) = (config.rotation.charter.as_deref(), config.rotation.longest_leaf);
    Inputs { bundle, charter, longest_leaf, issuer, site }
}

/// A CA that the rules of the fabric refuse issues nothing.
fn load_site_ca(
    issuer: &IssuerConfig,
    trust: &Trust,
    site: Option<&str>,
    now: SystemTime,
) -> Result<SiteCa, Error> {
    let site_ca = SiteCa::load(issuer, trust, site, now)?;
    let believed = trust.store().policy().check_ca(site_ca.facts());
    believed.map_err(|reason| rotation::Error::NotBelieved { place: issuer.certificate.clone(), reason })?;
    Ok(site_ca)
}

/// Our keys for tokens, for other nodes and partners. Without workloads here it can wait if it fails: it is tried again within a minute.
pub(super) fn publish(loaded: &mut Loaded, now: SystemTime) {
    let (Some(issuer), Some(base)) = (&loaded.issuer, &loaded.base) else { return };
    match issuer.publish(base, now) {
        Ok(bundle) => loaded.trust = Some(Arc::new(base.with_own(bundle))),
        Err(error) => tracing::warn!(%error, "the keys for tokens can't be published yet"),
    }
}

/// Loaded and found to fit together; nothing that lasts was changed for it.
pub(super) struct Prepared {
    pub(super) loaded: Loaded,
    bundle: Option<Bundle>,
}

impl Handle {
    pub(super) fn load(&self, sections: &Sections, now: SystemTime) -> Result<Prepared, Error> {
        let (config, issuer_config, api) = (sections.0.as_ref(), sections.1.as_ref(), sections.2.as_ref());
        let node = self.0.node.as_ref().map(|(site, name)| (site.as_str(), name.as_str()));
        // Before anything is read: what changes meanwhile is seen to have changed.
        let seen = Seen::of(sections);
        let rotation = self.0.rotation.as_ref();
        let files = load_files(rotation, config, issuer_config, node, now)?;
        let mut loaded = Loaded {
            config: config.cloned().map(Arc::new),
            material: files.material.map(|material| self.same_own(material)),
            audit: self.log(config, issuer_config, now)?,
            rules: Arc::new(issuer_config.map(|issuer| issuer.nodes.clone()).unwrap_or_default()),
            trust: files.trust.clone(),
            base: files.trust,
            seen,
            ..Loaded::default()
        };
        if let Some((site_ca, config)) = files.site_ca {
            loaded.issuer =
                loaded.audit.clone().map(|log| self.new_issuer(&config, site_ca, log)).transpose()?;
        }
        loaded.remote =
            config.zip(loaded.material.as_ref()).and_then(|(config, own)| self.remote(config, own));
        if api.is_none() {
            publish(&mut loaded, now);
        }
        if let Some(api) = api {
            self.load_supply(&mut loaded, api, files.reissue, issuer_config.is_some(), now)?;
        }
        Ok(Prepared { loaded, bundle: files.bundle })
    }

    /// Writes down what was loaded: the last step that may fail. An earlier one that fails leaves what the old sections go by.
    pub(super) fn keep(
        &self,
        sections: &Sections,
        prepared: Prepared,
        now: SystemTime,
    ) -> Result<Loaded, Error> {
        let Prepared { mut loaded, bundle } = prepared;
        let site = self.0.node.as_ref().map(|(site, _)| site.as_str());
        if let (Some(rotation), Some(config), Some(bundle)) = (&self.0.rotation, &sections.0, bundle) {
            rotation.reconcile(&inputs(&bundle, config, sections.1.as_ref(), site), now, true)?;
            loaded.site_cas = rotation.certificates();
            loaded.charter_sequence = rotation.state().charter_sequence();
        }
        Ok(loaded)
    }

    /// Where workloads get their SVIDs from. `issues`: there is an `[issuer]`.
    fn load_supply(
        &self,
        loaded: &mut Loaded,
        api: &WorkloadApiConfig,
        reissue: ReissueOrder,
        issues: bool,
        now: SystemTime,
    ) -> Result<(), Error> {
        let here = loaded.issuer.clone().map(Supplier::Local);
        let supplier = here.or_else(|| loaded.remote.clone().map(Supplier::Remote));
        match (supplier, loaded.base.clone()) {
            (Some(issuer), Some(base)) => {
                let registry = Registry::new(issuer.trust_domain().clone(), api.entries.clone())?;
                let trust = Arc::new(base.with_own(issuer.publish(&base, now)?));
                let (attestor, registry) = (self.attestor(&registry, api), Arc::new(registry));
                let reissue = match &issuer {
                    Supplier::Local(_) => reissue,
                    Supplier::Remote(remote) => remote.reissue(),
                };
                let reissue = reissue.capped(self.0.ledger.size());
                loaded.trust = Some(trust.clone());
                loaded.supply = Some(Supply { trust, issuer, registry, attestor, reissue });
                Ok(())
            }
            // A rotation has stopped the issuing: callers are told to come again.
            (None, Some(_)) if issues => Ok(()),
            _ => Err(Error::WorkloadApiAlone),
        }
    }

    /// One that gathers the same goes on: it knows hashes and pods, and callers keep their facts.
    fn attestor(&self, registry: &Registry, api: &WorkloadApiConfig) -> Arc<Attestor> {
        let (wants, kubernetes) = (registry.wants(), api.kubernetes.clone());
        let before = self.0.supply.borrow().as_ref().map(|supply| supply.attestor.clone());
        let before = before.filter(|before| before.serves(wants, kubernetes.as_ref()));
        before.unwrap_or_else(|| Arc::new(Attestor::new(wants, kubernetes)))
    }

    /// Who asks other nodes: the one that there is, if it serves the same trust domain.
    fn remote(&self, config: &Config, own: &Material) -> Option<Arc<Remote>> {
        if config.issuers.is_empty() {
            return None;
        }
        let domain = own.bundle.trust_domain();
        let current = self.loaded().remote.clone();
        let current = current.filter(|remote| remote.trust_domain() == domain);
        Some(current.unwrap_or_else(|| Remote::new(self.live(), domain.clone())))
    }

    /// The SVID that is in use, if the files hold the same: so that its renewal goes on where it is.
    fn same_own(&self, material: Material) -> Material {
        match (self.loaded().own(), &material.own) {
            (Some(old), Some(new)) if old.chain == new.chain => material.with(old.clone()),
            _ => material,
        }
    }

    fn new_issuer(
        &self,
        config: &IssuerConfig,
        ca: SiteCa,
        log: Arc<Log>,
    ) -> Result<Arc<Issuer>, issuing::Error> {
        let current = self.loaded().issuer.clone();
        Issuer::after(current.as_deref(), ca, config, log)
    }

    /// The open log if it is that of the configuration: a file has one writer. A node that issues nothing opens it for its first order.
    fn log(
        &self,
        config: Option<&Config>,
        issuer: Option<&IssuerConfig>,
        now: SystemTime,
    ) -> Result<Option<Arc<Log>>, audit::Error> {
        let current = self.loaded().audit.clone();
        let open = |file: &Path| current.filter(|log| log.path() == file);
        match (issuer, config) {
            (Some(issuer), _) => match open(&issuer.audit.file) {
                Some(log) => Ok(Some(log)),
                None => Log::open(&issuer.audit, now).map(Some),
            },
            (None, Some(config)) => Ok(open(&AuditConfig::new(&config.state_dir).file)),
            (None, None) => Ok(None),
        }
    }
}
