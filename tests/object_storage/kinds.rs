//! The kinds of stores, as a candidate and an administrator reach them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use incumbent::object_storage::Bucket;
use incumbent_test_support::object_stores::{
    ACCESS_KEY, ACCOUNT_KEY, BUCKET, Program, SECRET_KEY, StoreServer,
};
use incumbent_test_support::{HttpMessage, http_request};
use object_store::ClientOptions;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::OnceCell;

/// A kind of store.
pub trait Kind: Send + Sync + Sized + 'static {
    const PROGRAM: Program;

    /// The one server of all tests that do not break it.
    fn shared() -> &'static OnceCell<Arc<StoreServer>>;
    /// As a candidate reaches it.
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
                HttpMessage::new(format!("DELETE /storage/v1/b/{BUCKET}/o/{object} HTTP/1.1"));
            let answer =
                http_request(port, &request.with("host", format!("127.0.0.1:{port}"))).await;
            match answer.as_ref().map(HttpMessage::second) {
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

    fn shared() -> &'static OnceCell<Arc<StoreServer>> {
        static SERVER: OnceCell<Arc<StoreServer>> = OnceCell::const_new();
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

    fn shared() -> &'static OnceCell<Arc<StoreServer>> {
        static SERVER: OnceCell<Arc<StoreServer>> = OnceCell::const_new();
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

    fn shared() -> &'static OnceCell<Arc<StoreServer>> {
        static SERVER: OnceCell<Arc<StoreServer>> = OnceCell::const_new();
        &SERVER
    }

    fn bucket(port: u16) -> Bucket {
        Bucket::azure(azure(port)).unwrap()
    }

    fn store(port: u16) -> Arc<dyn ObjectStore> {
        Arc::new(azure(port).with_http_connector(Plain).build().unwrap())
    }
}

/// An entry as vimeo's candidates write it.
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

/// The transport of an administrator's `object_store`: one connection per request.
#[derive(Debug)]
struct Plain;

impl HttpConnector for Plain {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Self))
    }
}

impl HttpService for Plain {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
            let mut message = HttpMessage::new(format!("{} {target} HTTP/1.1", parts.method));
            for (name, value) in &parts.headers {
                message = message.with(name.as_str(), value.to_str().expect("a plain header"));
            }
            let port = parts.uri.port_u16().expect("a port");
            message = message.with("host", parts.uri.authority().expect("a host").as_str());
            message.body = body.collect().await?.to_bytes().to_vec();
            let lost = || {
                let none = io::Error::other("no response");
                HttpError::new(HttpErrorKind::Interrupted, none)
            };
            let response = http_request(port, &message).await.ok_or_else(lost)?;
            let mut built = http::Response::builder().status(response.second());
            for (name, value) in &response.headers {
                built = built.header(name, value);
            }
            let never = |error: std::convert::Infallible| match error {};
            let body = Full::new(Bytes::from(response.body)).map_err(never);
            Ok(built.body(HttpResponseBody::new(body)).expect("a response"))
        })
    }
}
