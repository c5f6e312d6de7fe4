"""Credentials, endpoints and regions of stores, found and renewed as AWS's tools do."""

from __future__ import annotations

import logging

import pytest

from buckets import KEY, OLD_KEY, SECRET, answer, refusal, settings, with_keys
from headrace import ImageFolder
from object_store import logged, proxy, same_as_on_disk, store  # noqa: F401

def test_credentials_files(store, proxy, tmp_path):
    (tmp_path / "credentials").write_text(
        f"[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
        f"[birds]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}\n")
    (tmp_path / "config").write_text(
        f"[profile birds]\nregion = us-east-1\nendpoint_url = {proxy.url}\ns3 =\n"
        "  addressing_style = path\n")
    files = {"AWS_CONFIG_FILE": tmp_path / "config",
             "AWS_SHARED_CREDENTIALS_FILE": tmp_path / "credentials"}
    with settings(AWS_PROFILE="birds", **files):
        assert len(ImageFolder("s3://birds/train", index="none")) == 63
    assert {one.key_id for one in proxy.requests} == {KEY}
    with settings(AWS_PROFILE="unknown", AWS_ENDPOINT_URL=proxy.url, **files):
        with pytest.raises(OSError, match="AWS_PROFILE is unknown"):
            ImageFolder("s3://birds/train", index="none")
    (tmp_path / "config").write_text("[default]\nsso_session = x\n")
    (tmp_path / "credentials").unlink()
    with settings(AWS_ENDPOINT_URL=proxy.url, **files):
        with pytest.raises(NotImplementedError, match="aws configure export-credentials"):
            ImageFolder("s3://birds/train", index="none")


def metadata(proxy, keys):
    """Makes the proxy a metadata server, too, which gives out the next of `keys` each time."""
    def fault(request):
        if request.target == "/" "latest/api/token":
            assert request.method == "PUT"
            assert request.headers["x-aws-ec2-metadata-token-ttl-seconds"]
            return answer(200, "the-token")
        if request.target.startswith("/" "latest/meta-data/"):
            assert request.headers["x-aws-ec2-metadata-token"] == "the-token"
            if request.target.endswith("security-credentials/"):
                return answer(200, "role")
            key = keys.pop(0) if len(keys) > 1 else keys[0]
            return answer(200, '{"Code": "Success", "AccessKeyId": "%s", "SecretAccessKey": "%s", '
                          '"Token": "session-%s", "Expiration": "2099-01-01T00:00:00Z"}'
                          % (key, SECRET, key))
        return None

    return fault


def test_instance_credentials(store, proxy):
    proxy.fault = metadata(proxy, [KEY])
    with settings(AWS_EC2_METADATA_DISABLED="false", AWS_ENDPOINT_URL=proxy.url,
                  AWS_EC2_METADATA_SERVICE_ENDPOINT=proxy.url):
        assert len(ImageFolder("s3://birds/train", index="none")) == 63
    lists = [one for one in proxy.requests if one.is_list]
    assert {one.key_id for one in lists} == {KEY}
    assert {one.headers["x-amz-security-token"] for one in lists} == {f"session-{KEY}"}


def test_expired_token_is_renewed(store, proxy):
    """The store calls the first session expired in the middle of an epoch."""
    give = metadata(proxy, [OLD_KEY, KEY])
    served = []

    def fault(request):
        found = give(request)
        if found is not None:
            return found
        if request.key_id == OLD_KEY:
            if len(served) > 20:
                return refusal(400, "ExpiredToken")
            served.append(request)
        return None

    proxy.fault = fault
    with settings(AWS_EC2_METADATA_DISABLED="false", AWS_ENDPOINT_URL=proxy.url,
                  AWS_EC2_METADATA_SERVICE_ENDPOINT=proxy.url):
        same_as_on_disk(store)
    assert len(served) == 21
    assert {one.key_id for one in proxy.requests if one.key_id} == {OLD_KEY, KEY}


def test_web_identity(store, proxy, tmp_path):
    (tmp_path / "token").write_text("a.web.identity\n")
    asked = []

    def fault(request):
        if request.method != "POST":
            return None
        asked.append(request.body.decode())
        return answer(200, "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult>"
                      f"<Credentials><AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}"
                      "</SecretAccessKey><SessionToken>s</SessionToken><Expiration>"
                      "2099-01-01T00:00:00Z</Expiration></Credentials>"
                      "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")

    proxy.fault = fault
    given = {"AWS_WEB_IDENTITY_TOKEN_FILE": tmp_path / "token", "AWS_ROLE_ARN": "arn:aws:role/x",
             "AWS_ENDPOINT_URL_STS": proxy.url, "AWS_ENDPOINT_URL_S3": proxy.url}
    with settings(**given):
        assert len(ImageFolder("s3://birds/train", index="none")) == 63
    assert len(asked) == 1
    assert "RoleArn=arn%3Aaws%3Arole%2Fx" in asked[0]
    assert "WebIdentityToken=a.web.identity" in asked[0]
    proxy.fault = lambda request: refusal(403, "AccessDenied") if request.method == "POST" else None
    with settings(**given), pytest.raises(OSError, match="cannot be assumed") as caught:
        ImageFolder("s3://birds/train", index="none")
    assert "a.web.identity" not in str(caught.value)


def test_anonymous(store, proxy):
    proxy.fault = lambda request: refusal(403, "AccessDenied")
    with settings(AWS_ENDPOINT_URL=proxy.url):
        with pytest.raises(OSError, match="anonymous request.*no credentials were found"):
            ImageFolder("s3://birds/train", index="none")
    with with_keys(proxy.url, AWS_NO_SIGN_REQUEST="YES"):
        with pytest.raises(OSError, match="anonymous request"):
            ImageFolder("s3://birds/train", index="none")
    assert {one.key_id for one in proxy.requests} == {""}


# ---- regions, clocks, endpoints ----


def test_region_is_found(store, proxy):
    def fault(request):
        if "/" "eu-west-9/s3/" in request.headers["authorization"]:
            return None
        return refusal(301, "PermanentRedirect", x_amz_bucket_region="eu-west-9")

    proxy.fault = fault
    with with_keys(proxy.url), logged() as lines:
        assert len(ImageFolder("s3://birds/train", index="none")) == 63
    assert any("is in the region eu-west-9" in one and "AWS_REGION=eu-west-9" in one
               for one in lines)
    assert sum("/" "us-east-1/s3/" in one.headers["authorization"] for one in proxy.requests) == 1
    proxy.fault = lambda request: refusal(301, "PermanentRedirect")
    with with_keys(proxy.url), pytest.raises(OSError, match="set AWS_REGION"):
        ImageFolder("s3://birds/train", index="none")


def test_clock_skew(store, proxy):
    def fault(request):
        if request.headers["x-amz-date"].startswith("2031"):
            return answer(418)
        return refusal(403, "RequestTimeTooSkewed", Date="Thu, 02 Jan 2031 00:00:00 GMT")

    proxy.fault = fault
    with with_keys(proxy.url), logged(logging.WARNING) as lines:
        with pytest.raises(OSError, match="418"):
            ImageFolder("s3://birds/train", index="none")
    assert any("clock is" in one and "behind the store's" in one for one in lines)
    proxy.fault = lambda request: refusal(403, "RequestTimeTooSkewed")
    with with_keys(proxy.url), pytest.raises(OSError, match="clock is wrong"):
        ImageFolder("s3://birds/train", index="none")
