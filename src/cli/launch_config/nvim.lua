-- Neovim with nvim-dap: after require('dap') in your configuration. Then :DapNew, or :DapContinue
-- in a Python buffer, started in the folder that holds your source files.
local dap = require('dap')
dap.adapters.ray_relay = {
  type = 'server',
  host = '@host@',
  port = @port@,
  options = { source_filetype = 'python' },
}
dap.configurations.python = dap.configurations.python or {}
table.insert(dap.configurations.python, {
  type = 'ray_relay',
  request = 'attach',
  name = '@name@',
  workspaceFolder = vim.fn.getcwd(), -- stands for the job's working_dir, where it has one
  rayRelay = {
    -- token = vim.env.RAY_RELAY_TOKEN, -- who you are, where the relay wants to know
    -- localRoot = '/home/me/project', -- the folder with the job's files, where it is another one
    @selection@,
  },
})
