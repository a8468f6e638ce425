// A certified OpenID Connect provider for tests. Arguments: the library, the port.
// Any name and password sign in. The groups of a user are the words of the name after "+": ann+sre.
const [, , library, port] = process.argv;
const { Provider } = await import(library);
const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients: [
    {
      client_id: 'console',
      client_secret: 'a-secret-of-the-console',
      application_type: 'native', // any port of the loopback address
      redirect_uris: ['http://127.0.0.1/login/oidc/callback'],
      post_logout_redirect_uris: [],
      token_endpoint_auth_method: 'client_secret_basic',
    },
  ],
  claims: { openid: ['sub'], profile: ['preferred_username', 'groups'] },
  cookies: { keys: ['a key for tests'] },
  pkce: { required: () => true },
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: () => ({
      sub: id,
      preferred_username: id.split('+')[0],
      groups: id.split('+').slice(1),
    }),
  }),
});
provider.listen(Number(port), '127.0.0.1');
