//! The kinds of stores, as a campaigner and an administrator reach them.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use incumbent::objects::Bucket;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::OnceCell;

use crate::raw::{Message, Plain, ask};
use crate::server::{ACCESS_KEY, ACCOUNT_KEY, BUCKET, Program, SECRET_KEY, Server};

/// A kind of store.
pub trait Kind: Send + Sync + Sized + 'static {
    const PROGRAM: Program;

    /// The one server of all tests that do not break it.
    fn shared() -> &'static OnceCell<Arc<Server>>;
    /// As a campaigner reaches it.
    fn bucket(port: u16) -> Bucket;
    /// As its administrator does.
    fn store(port: u16) -> Arc<dyn ObjectStore>;

    /// Has the administrator delete an object. `port`: of the store itself.
    fn delete(
        store: &Arc<dyn ObjectStore>,
        port: u16,
        path: &Path,
    ) -> impl Future<Output = object_store::Result<()>> + Send {
        async move {
            if Self::PROGRAM != Program::FakeGcs {
                return store.delete(path).await;
            }
            let object = path.to_string().replace('/', "%2F");
            let request =
                Message::new(format!("DELETE /storage/v1/b/{BUCKET}/o/{object} HTTP/1.1"));
            let answer = ask(port, &request.with("host", format!("127.0.0.1:{port}"))).await;
            match answer.as_ref().map(Message::second) {
                Some("200") => Ok(()),
                other => Err(object_store::Error::NotFound {
                    path: path.to_string(),
                    source: format!("{other:?}").into(),
                }),
            }
        }
    }
}

pub enum Gcs {}
pub enum S3 {}
pub enum Azure {}

fn google(port: u16) -> GoogleCloudStorageBuilder {
    GoogleCloudStorageBuilder::new()
        .with_bucket_name(BUCKET)
        .with_base_url(&format!("http://127.0.0.1:{port}"))
        .with_service_account_key(
            r#"{"disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#,
        )
}

fn amazon(port: u16) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_endpoint(format!("http://127.0.0.1:{port}"))
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
}

pub fn azure(port: u16) -> MicrosoftAzureBuilder {
    MicrosoftAzureBuilder::new()
        .with_container_name(BUCKET)
        .with_endpoint(format!("http://127.0.0.1:{port}/{ACCESS_KEY}"))
        .with_allow_http(true)
        .with_account(ACCESS_KEY)
        .with_access_key(ACCOUNT_KEY)
}

impl Kind for Gcs {
    const PROGRAM: Program = Program::FakeGcs;

    fn shared() -> &'static OnceCell<Arc<Server>> {
        static SERVER: OnceCell<Arc<Server>> = OnceCell::const_new();
        &SERVER
    }

    fn bucket(port: u16) -> Bucket {
        Bucket::google(google(port)).unwrap().allow_http()
    }

    fn store(port: u16) -> Arc<dyn ObjectStore> {
        Arc::new(google(port).with_http_connector(Plain).build().unwrap())
    }
}

impl Kind for S3 {
    const PROGRAM: Program = Program::Versitygw;

    fn shared() -> &'static OnceCell<Arc<Server>> {
        static SERVER: OnceCell<Arc<Server>> = OnceCell::const_new();
        &SERVER
    }

    fn bucket(port: u16) -> Bucket {
        Bucket::amazon(amazon(port)).unwrap()
    }

    fn store(port: u16) -> Arc<dyn ObjectStore> {
        Arc::new(amazon(port).with_http_connector(Plain).build().unwrap())
    }
}

impl Kind for Azure {
    const PROGRAM: Program = Program::Azurite;

    fn shared() -> &'static OnceCell<Arc<Server>> {
        static SERVER: OnceCell<Arc<Server>> = OnceCell::const_new();
        &SERVER
    }

    fn bucket(port: u16) -> Bucket {
        Bucket::azure(azure(port)).unwrap()
    }

    fn store(port: u16) -> Arc<dyn ObjectStore> {
        Arc::new(azure(port).with_http_connector(Plain).build().unwrap())
    }
}

/// An entry as vimeo's campaigners write it.
pub fn of_go(number: u64, leader: &str, expires_in: Duration) -> Vec<u8> {
    fn varint(bytes: &mut Vec<u8>, mut number: u64) {
        while number >= 0x80 {
            bytes.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }
    let mut bytes = vec![0x08];
    varint(&mut bytes, number);
    bytes.extend([0x12, leader.len() as u8]);
    bytes.extend(leader.as_bytes());
    let expiry = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + expires_in;
    let mut inner = vec![0x08];
    varint(&mut inner, expiry.as_secs());
    bytes.extend([0x22, inner.len() as u8]);
    bytes.extend(inner);
    bytes
}
