;; Emacs with dape: in your init file. Then, in a Python buffer, M-x dape RET RET: dape fills in
;; `ray-relay` itself where no other configuration fits.
(with-eval-after-load 'dape
  ;; Else dape says goodbye to all sessions as Emacs ends, and its tasks run on instead of
  ;; waiting for you.
  (remove-hook 'kill-emacs-hook #'dape--kill-busy-wait)
  (add-to-list 'dape-configs
               '(ray-relay
                 modes (python-mode python-ts-mode)
                 host "@host@"
                 port @port@
                 :type "python"
                 :request "attach"
                 ;; Stands for the job's working_dir, where it has one. Where the job's files are in
                 ;; another folder: :localRoot "…" behind @selection@.
                 :workspaceFolder dape-cwd
                 ;; Who you are, where the relay wants to know:
                 ;; :rayRelayToken "…"
                 :rayRelay (@selection@))))
