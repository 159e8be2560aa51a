#include "kube/testing/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <memory>

namespace tessera::kube::testing {
namespace {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;

std::string TextOf(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

KeyPair Write(const Certificate& certificate, const Key& key) {
  const Bio one(BIO_new(BIO_s_mem()), BIO_free), other(BIO_new(BIO_s_mem()), BIO_free);
  PEM_write_bio_X509(one.get(), certificate.get());
  PEM_write_bio_PrivateKey(other.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  return {TextOf(one), TextOf(other)};
}

void Extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Certificate Blank(const std::string& name, EVP_PKEY* key) {
  static std::atomic<long> serial{1};
  Certificate certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 86400);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

}  // namespace

KeyPair MakeAuthority(const std::string& name) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const Certificate certificate = Blank(name, key.get());
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  Extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  return Write(certificate, key);
}

KeyPair Issue(const KeyPair& authority, const std::string& host, bool is_server) {
  const Bio certificate_bio(BIO_new_mem_buf(authority.certificate_pem.data(), -1), BIO_free);
  const Bio key_bio(BIO_new_mem_buf(authority.key_pem.data(), -1), BIO_free);
  const Certificate issuer(PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr),
                           X509_free);
  const Key issuer_key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr),
                       EVP_PKEY_free);
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const Certificate certificate = Blank(host, key.get());
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos;
  if (is_server) {
    Extend(certificate.get(), issuer.get(), NID_subject_alt_name,
           (is_address ? "IP:" : "DNS:") + host);
  }
  X509_sign(certificate.get(), issuer_key.get(), EVP_sha256());
  return Write(certificate, key);
}

}  // namespace tessera::kube::testing
